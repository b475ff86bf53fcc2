package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// secondConfig has two namespaces with a queue of the same name.
const secondConfig = `{"UserConfig":{"Namespaces":[
	{"Name":"sbemulatorns","Queues":[{"Name":"orders"}],"Topics":[]},
	{"Name":"shop","Queues":[{"Name":"orders","Properties":{"MaxDeliveryCount":8}}],"Topics":[]}]}}`

// Two namespaces are isolated from each other, for the official client, which selects one by host name, and for
// the command line, which selects one by flag. A key is valid for one of them, and no longer after it is changed.
func TestNamespacesAreIsolated(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--config", kit.WriteFile(t, secondConfig))
	defer stop()
	a, b, c := ready.Members[0], ready.Members[1], ready.Members[2]
	if n := ready.Config.Namespaces; ready.Config.Created != 3 || len(n) != 2 || n[1].Name != "shop" || !strings.HasPrefix(n[1].ConnectionString, "Endpoint=sb://shop."+a.AMQP+";") {
		t.Fatalf("%+v", ready.Config)
	}
	say(t, a, 0, "message", "send", "orders", "of default")
	say(t, b, 0, "message", "send", "orders", "of shop", "--namespace", "shop")
	wants(t, say(t, c, 0, "message", "peek", "orders", "--namespace", "shop"), "of shop")
	wants(t, say(t, c, 0, "message", "peek", "orders", "--namespace", "default"), "of default")
	wants(t, say(t, c, 0, "queue", "show", "orders", "--namespace", "shop", "-o", "json"), `"maxDeliveryCount": 8`, `"active": 1`)
	wants(t, say(t, c, 1, "queue", "list", "--namespace", "none"), "no namespace 'none'")

	// A key of the namespace, for clients that have no other.
	var key api.AccessRule
	kit.OK(t, json.Unmarshal([]byte(say(t, b, 0, "key", "create", "backend", "--rights", "send,listen", "--namespace", "shop", "-o", "json")), &key))
	with := []string{"--namespace", "shop", "--key-name", "backend", "--key", key.PrimaryKey}
	tried := func(m devMember, args ...string) int {
		var out, errs bytes.Buffer
		return run(t.Context(), cli.Process{Args: append(append(args, "--server", m.Admin), with...), Out: &out, Err: &errs})
	}
	// The member that received the request knows the key at once, the others a little later.
	if code := tried(b, "message", "peek", "orders"); code != cli.ExitDone {
		t.Error("the key does not open the member that made it:", code)
	}
	for _, m := range []devMember{a, c} {
		kit.Eventually(t, "the key is known everywhere", func() bool { return tried(m, "message", "peek", "orders") == cli.ExitDone })
	}
	wants(t, say(t, c, 0, append([]string{"message", "receive", "orders"}, with...)...), "of shop")
	wants(t, say(t, c, 1, append([]string{"queue", "delete", "orders", "--yes"}, with...)...), "nauthorized")
	with[1] = "default"
	wants(t, say(t, c, 1, append([]string{"message", "peek", "orders"}, with...)...), "nauthorized")

	// The official client, with the output of key show; the host name need not resolve here.
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if !strings.HasPrefix(key.PrimaryConnectionString, "Endpoint=sb://shop.localhost:") {
		t.Fatal(key.PrimaryConnectionString)
	}
	client := kit.Must(azservicebus.NewClientFromConnectionString(key.PrimaryConnectionString, &azservicebus.ClientOptions{CustomEndpoint: a.AMQP}))(t)
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	sender := kit.Must(client.NewSender("orders", nil))(t)
	kit.OK(t, sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("by the client")}, nil))
	receiver := kit.Must(client.NewReceiverForQueue("orders", nil))(t)
	got, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].Body, []byte("by the client")) {
		t.Fatal(len(got), err)
	}
	if err := receiver.CompleteMessage(ctx, got[0], nil); err != nil {
		t.Error(err)
	}

	say(t, a, 0, "key", "regenerate", "backend", "--namespace", "shop")
	with[1] = "shop"
	kit.Eventually(t, "the old secret is refused", func() bool { return tried(b, "message", "peek", "orders") == cli.ExitRefused })
	wants(t, say(t, a, 1, "namespace", "delete", "shop"), "delete them first")
	say(t, a, 0, "queue", "delete", "orders", "--yes", "--namespace", "shop")
	say(t, a, 0, "namespace", "delete", "shop")
	wants(t, say(t, a, 0, "message", "peek", "orders"), "of default")
}
