package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// sampleConfig has every property and every kind of rule that the samples of the emulator have.
const sampleConfig = "../../admin/emulator/testdata/Config.json"

// A user of the emulator passes its Config.json to dev, and everything in it exists, for the official client and
// the connection string in the documentation of the emulator.
func TestDevCreatesWhatConfigJSONLists(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	dir := filepath.Join(kit.MemoryDir(t), "data")
	ready, stop := startDev(t, dir, "--config", sampleConfig)
	defer stop()
	if c := ready.Config; c == nil || c.Created != 7 || len(c.Problems)+len(c.Warnings) > 0 || len(c.Namespaces) != 1 || c.Namespaces[0].ConnectionString != ready.Members[0].ConnectionString {
		t.Fatalf("%+v", ready.Config)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	client := kit.Must(azservicebus.NewClientFromConnectionString(ready.Config.Namespaces[0].ConnectionString, nil))(t)
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	// Send to a queue that forwards to a topic, where a rule by size matches the message and changes it.
	sender := kit.Must(client.NewSender("intake", nil))(t)
	subject := "order-1"
	message := &azservicebus.Message{Body: []byte("hello"), Subject: &subject, ApplicationProperties: map[string]any{"size": int64(700)}}
	kit.OK(t, sender.SendMessage(ctx, message, nil))
	for subscription, to := range map[string]string{"large": "warehouse", "everything": ""} {
		receiver := kit.Must(client.NewReceiverForSubscription("orders", subscription, nil))(t)
		got, err := receiver.ReceiveMessages(ctx, 1, nil)
		if err != nil || len(got) != 1 || string(got[0].Body) != "hello" {
			t.Fatal(subscription, len(got), err)
		}
		if has := got[0].To; (has == nil) != (to == "") || has != nil && *has != to {
			t.Errorf("%s: to %v", subscription, has)
		}
		if err := receiver.CompleteMessage(ctx, got[0], nil); err != nil {
			t.Error(err)
		}
	}
	wants(t, say(t, ready.Members[2], 0, "subscription", "show", "orders/Subscriptions/web", "-o", "json"), `"active": 0`)

	// A second start finds everything, including changes since then that are not in the file.
	say(t, ready.Members[1], 0, "queue", "update", "lost", "--max-delivery-count", "9")
	say(t, ready.Members[1], 0, "queue", "update", "intake", "--max-delivery-count", "9")
	if code := stop(); code != 0 {
		t.Fatal(code)
	}
	ready, stop = startDev(t, dir, "--config", sampleConfig)
	defer stop()
	if c := ready.Config; c.Created != 0 || c.Updated != 1 || c.Unchanged != 6 {
		t.Errorf("%+v", c)
	}
	wants(t, say(t, ready.Members[0], 0, "queue", "show", "lost", "-o", "json"), `"maxDeliveryCount": 9`)
	wants(t, say(t, ready.Members[0], 0, "queue", "show", "intake", "-o", "json"), `"maxDeliveryCount": 3`)
}

// import does to a running cluster what --config does at the start of dev: it may be repeated, and deletes nothing.
func TestImportCreatesWhatConfigJSONLists(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	defer stop()
	m := ready.Members[0]
	say(t, m, 0, "queue", "create", "own")
	wants(t, say(t, m, 0, "import", sampleConfig), "7 created, 0 updated, 0 unchanged")
	wants(t, say(t, m, 0, "import", sampleConfig), "0 created, 0 updated, 7 unchanged")
	say(t, m, 0, "queue", "update", "intake", "--max-delivery-count", "9")
	say(t, m, 0, "rule", "replace", "orders/Subscriptions/large", "by-size", "--sql", "size > 1")
	wants(t, say(t, m, 0, "import", sampleConfig, "-o", "json"), `"updated": 2`, `"unchanged": 5`)
	wants(t, say(t, m, 0, "queue", "show", "intake", "-o", "json"), `"maxDeliveryCount": 3`, `"forwardTo": "orders"`)
	say(t, m, 0, "queue", "show", "own")

	// A new version of the file, with a second namespace and something that cannot be done.
	path := filepath.Join(t.TempDir(), "Config.json")
	text := `{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"intake","Properties":{"RequiresSession":true}},{"Name":"new"}]},
		{"Name":"shop","Topics":[{"Name":"t","Subscriptions":[{"Name":"s","Rules":[{"Name":"r","Properties":{"FilterType":"Sql",
			"SqlFilter":{"SqlExpression":"size > 1.5 AND sys.Label = 'a'"},"Action":{"SqlExpression":"SET a = 1"}}}]}]}]}]}}`
	kit.OK(t, os.WriteFile(path, []byte(text), 0o600))
	wants(t, say(t, m, 1, "import", path), "4 created, 0 updated, 1 unchanged", "Namespaces[0].Queues[0] (intake): Properties.RequiresSession is false", "not everything is as in "+path)
	wants(t, say(t, m, 1, "import", path), "0 created, 0 updated, 5 unchanged")
	wants(t, say(t, m, 0, "rule", "list", "t/Subscriptions/s", "--namespace", "shop"), "size > 1.5")
	say(t, m, 1, "queue", "show", "new", "--namespace", "shop")
	wants(t, say(t, m, 2, "import", path+"x"), "no such file")
}

// An invalid file is reported before anything is changed. A file that contradicts existing entities is reported,
// and the rest is applied.
func TestDevRefusesInvalidConfigJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "Config.json")
	text := `{"UserConfig":{"Namespaces":[{"Queues":[{"Name":"q","Properties":{"LockDuration":"PT0S"}}]}]}}`
	kit.OK(t, os.WriteFile(path, []byte(text), 0o600))
	for _, args := range [][]string{
		{"dev", "--dir", filepath.Join(dir, "data"), "--config", path},
		{"serve", "--dir", filepath.Join(dir, "data"), "--key", "k", "--config-emulator", path},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), cli.Process{Args: args, Out: &out, Err: &errs})
		if text := errs.String(); code != cli.ExitUsage || strings.Count(text, "\n") != 1 || !strings.Contains(text, path+": Namespaces[0].Queues[0].Properties.LockDuration: is PT1S to P1D, not PT0S") {
			t.Errorf("%d %s", code, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !os.IsNotExist(err) {
		t.Error("the data folder was made:", err)
	}
}
