package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// TestEntitiesOfOtherFormsAreApplied applies what Bicep builds and a Config.json, twice.
func TestEntitiesOfOtherFormsAreApplied(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	m := ready.Members[0]
	const forms = "internal/cli/declare/testdata/forms/"
	for _, c := range []struct {
		namespace string
		file      []string
		want      []string
	}{
		{"bicep", []string{"-f", forms + "bicep.json", "--parameter", "environment=prod"}, []string{"warning: Microsoft.ServiceBus/namespaces/networkRuleSets default: ignored", "+ rule urgent of events/Subscriptions/region-us", "8 of 8 changes made"}},
		{"modules", []string{"-f", forms + "modules.json"}, []string{"+ key biller of invoices", "+ topic events", "4 of 4 changes made"}},
		{"config", []string{"-f", forms + "Config.json"}, []string{"+ subscription topic.1/Subscriptions/subscription.4", "4 of 4 changes made"}},
	} {
		say(t, m, 0, "namespace", "create", c.namespace)
		in := append(c.file, "--namespace", c.namespace)
		wants(t, say(t, m, 0, append([]string{"apply"}, in...)...), c.want...)
		say(t, m, 0, append([]string{"diff"}, in...)...)
	}
}

// TestConnectionStringsBecomeASecret checks what apply writes to Kubernetes: the strings of the declared keys, in the Secret that is named.
func TestConnectionStringsBecomeASecret(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	status := http.StatusOK
	var patched string
	env, account := kit.KubernetesAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/namespaces/queues/secrets/connections" || r.Header.Get("Content-Type") != "application/json-patch+json" {
			t.Errorf("got %s %s %s, want a patch of the Secret", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
		}
		body, _ := io.ReadAll(r.Body)
		patched = string(body)
		w.WriteHeader(status)
	})
	file := kit.WriteFile(t, "keys: [{name: app, rights: [Send]}]\nqueues: [{name: shop/orders, keys: [{name: reader, rights: [Listen]}]}]")
	apply := func(want int) string {
		var out bytes.Buffer
		code := run(t.Context(), cli.Process{
			Args: []string{"apply", "-f", file, "--kubernetes-secret", "connections", "--account", account, "--server", ready.Members[0].Admin}, Env: env, Out: &out, Err: &out,
		})
		if code != want {
			t.Errorf("got exit code %d, want %d: %s", code, want, out.String())
		}
		return out.String()
	}
	wants(t, apply(cli.ExitDone), "3 of 3 changes made", "2 connection strings are in the Secret connections")
	var patch []struct {
		Op, Path string
		Value    map[string][]byte
	}
	if err := json.Unmarshal([]byte(patched), &patch); err != nil || len(patch) != 1 || patch[0].Path != "/data" || len(patch[0].Value) != 2 {
		t.Fatalf("got %s, %v, want one operation with the data of two keys", patched, err)
	}
	wants(t, string(patch[0].Value["app"]), "Endpoint=sb://", ";SharedAccessKeyName=app;")
	wants(t, string(patch[0].Value["shop.orders.reader"]), ";SharedAccessKeyName=reader;", ";EntityPath=shop/orders")
	status = http.StatusForbidden
	wants(t, apply(cli.ExitRefused), "write the Secret connections", "403")
}
