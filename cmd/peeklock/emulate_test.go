package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// emulation is a run of peeklock emulator.
type emulation struct {
	emulatorReady

	out, errs *kit.LogLines
	cancel    context.CancelFunc
	code      chan int
}

// stop ends the emulator as a signal does and returns its exit code.
func (e *emulation) stop() int {
	e.cancel()
	code := <-e.code
	e.code <- code
	return code
}

// startEmulator starts the emulator on free ports and waits until it has printed what until finds.
func startEmulator(t *testing.T, env []string, until func(e *emulation) bool, args ...string) *emulation {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := &emulation{out: &kit.LogLines{}, errs: &kit.LogLines{}, cancel: cancel, code: make(chan int, 1)}
	go func() {
		e.code <- run(ctx, cli.Process{
			Args: append([]string{"emulator", "--amqp-port", "0", "--http-port", "0"}, args...), Env: env, Out: e.out, Err: e.errs,
		})
	}()
	t.Cleanup(func() { e.stop() })
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !until(e) {
		select {
		case code := <-e.code:
			e.code <- code
			t.Fatalf("the emulator ended with %d: %s", code, e.errs.String())
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("not ready")
		}
	}
	return e
}

// jsonReady waits for the output of -o json.
func jsonReady(e *emulation) bool {
	return json.Unmarshal([]byte(e.out.String()), &e.emulatorReady) == nil
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	request := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	answer := kit.Must(http.DefaultClient.Do(request))(t)
	defer answer.Body.Close()
	text := kit.Must(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, string(text)
}

// sendAndReceive exchanges a message with the official client.
func sendAndReceive(t *testing.T, connection, queue string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := azservicebus.NewClientFromConnectionString(connection, &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	sender, err := client.NewSender(queue, nil)
	if err == nil {
		err = sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil)
	}
	if err != nil {
		return err
	}
	receiver := kit.Must(client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}))(t)
	got, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err == nil && (len(got) != 1 || string(got[0].Body) != "hello") {
		t.Errorf("received %d messages", len(got))
	}
	return err
}

// Tools wait for the line and for /health, and have set variables for the SQL server of the official emulator.
func TestEmulatorSaysThatItIsUpOnce(t *testing.T) {
	t.Parallel()
	env := []string{"ACCEPT_EULA=N", "SQL_SERVER=sql", "MSSQL_SA_PASSWORD=secret", "SQL_WAIT_INTERVAL=0"}
	e := startEmulator(t, env, func(e *emulation) bool { return strings.Contains(e.out.String(), emulatorUp+"\n") })
	text := e.out.String()
	wants(t, text, "NEVER EXPOSE IT", "Ignored, because there is no SQL server and no license to accept: ACCEPT_EULA, MSSQL_SA_PASSWORD, SQL_SERVER, SQL_WAIT_INTERVAL\n", "6 created")
	if strings.Count(text, emulatorUp) != 1 || strings.Contains(text, "secret") {
		t.Error(text)
	}
	_, after, _ := strings.Cut(text, "administration on ")
	url, _, _ := strings.Cut(after, "\n")
	if status, body := get(t, url+"/health"); status != http.StatusOK || body != `{"status":"healthy","message":"Service is healthy."}`+"\n" {
		t.Errorf("health: %d %s", status, body)
	}
	for code, health := range map[int]string{cli.ExitDone: url + "/health", cli.ExitRefused: url + "/v1/nowhere", cli.ExitUsage: "://"} {
		if got := run(t.Context(), cli.Process{Args: []string{"healthcheck", "--url", health}, Out: io.Discard, Err: io.Discard}); got != code {
			t.Errorf("healthcheck of %s: exit code %d, want %d", health, got, code)
		}
	}
	_, body := get(t, url+"/v1/subscriptions?topic=topic.1")
	for _, name := range []string{"subscription.1", "subscription.2", "subscription.3", "subscription.4"} {
		wants(t, body, "topic.1/Subscriptions/"+name)
	}
	began := time.Now()
	if code := e.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, e.errs.String())
	}
	t.Logf("stopped within %s", time.Since(began))
}

// The folder is removed at the end, and projects ship the name of the key with secrets of their own.
func TestEmulatorAcceptsAnySecretOfItsKeyAlone(t *testing.T) {
	t.Parallel()
	e := startEmulator(t, nil, jsonReady, "-o", "json")
	with := func(name, secret string) string { return connectionString(e.AMQP, name, secret) }
	for _, secret := range []string{auth.DevKey, "dummy", "local"} {
		if err := sendAndReceive(t, with(auth.DevKeyName, secret), "queue.1"); err != nil {
			t.Error(secret, err)
		}
	}
	m := e.devMember
	say(t, m, 0, "key", "create", "sender", "--rights", "send,listen")
	for name, secret := range map[string]string{"sender": "dummy", "other": "dummy"} {
		if err := sendAndReceive(t, with(name, secret), "queue.1"); err == nil {
			t.Errorf("%s with a wrong secret was accepted", name)
		}
	}
	if _, err := os.Stat(e.Dir); err != nil {
		t.Error(err)
	}
	if code := e.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(e.Dir); !os.IsNotExist(err) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

func TestEmulatorThatRequiresKeysRefusesOthers(t *testing.T) {
	t.Parallel()
	e := startEmulator(t, nil, jsonReady, "-o", "json", "--require-key")
	if err := sendAndReceive(t, connectionString(e.AMQP, auth.DevKeyName, "dummy"), "queue.1"); err == nil {
		t.Error("a wrong secret was accepted")
	}
	if err := sendAndReceive(t, e.ConnectionString, "queue.1"); err != nil {
		t.Error(err)
	}
	if status, _ := get(t, e.Admin+"/v1/queues"); status != http.StatusUnauthorized {
		t.Errorf("a request without a key: %d, want 401", status)
	}
}

// Messages stay with --dir, and the configuration is a file, a folder or a variable.
func TestEmulatorKeepsDataOnlyIfAsked(t *testing.T) {
	t.Parallel()
	folder, dir := t.TempDir(), filepath.Join(kit.MemoryDir(t), "data")
	const text = `{"UserConfig":{"Namespaces":[{"Name":"a","Queues":[{"Name":"kept"}]}]}}`
	kit.OK(t, os.WriteFile(filepath.Join(folder, "Config.json"), []byte(text), 0o600))
	e := startEmulator(t, nil, jsonReady, "-o", "json", "--dir", dir, "--config", folder)
	say(t, e.devMember, 0, "message", "send", "kept", "still here")
	if code := e.stop(); code != 0 {
		t.Fatalf("exit code %d: %s", code, e.errs.String())
	}
	e = startEmulator(t, []string{"PEEKLOCK_CONFIG_JSON=" + text}, jsonReady, "-o", "json", "--dir", dir)
	if e.Config.File != "PEEKLOCK_CONFIG_JSON" || e.Config.Unchanged != 1 {
		t.Errorf("%+v", e.Config)
	}
	wants(t, say(t, e.devMember, 0, "message", "receive", "kept"), "still here")
}

// What administration would refuse is found before a port is bound.
func TestEmulatorRefusesWhatCannotBeCreated(t *testing.T) {
	t.Parallel()
	const bad = `{"UserConfig":{"Namespaces":[{"Name":"a","Queues":[{"Name":"q","Properties":{"LockDuration":"PT0S"}},{"Name":"to nobody"},
		{"Name":"good","Properties":{"MaxDeliveryCount":4}}]}]}}`
	const forwards = `{"UserConfig":{"Namespaces":[{"Name":"a","Queues":[{"Name":"q","Properties":{"ForwardTo":"missing"}},
		{"Name":"s","Properties":{"ForwardTo":"q","RequiresSession":true}}]}]}}`
	for text, want := range map[string][]string{
		bad:      {"Namespaces[0].Queues[0].Properties.LockDuration: is PT1S to", "Namespaces[0].Queues[1].Name: "},
		forwards: {`Namespaces[0].Queues[0].Properties.ForwardTo: "missing" is not a queue`, "Namespaces[0].Queues[1].Properties.ForwardTo: an entity that requires sessions"},
		`{`:      {"line 1"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), cli.Process{Args: []string{"emulator", "--amqp-port", "1", "--http-port", "1"}, Env: []string{"PEEKLOCK_CONFIG_JSON=" + text}, Out: &out, Err: &errs})
		if code != cli.ExitRefused || out.Len() > 0 {
			t.Errorf("exit code %d, want 1: %s", code, out.String())
		}
		wants(t, errs.String(), append(slices.Clone(want), "PEEKLOCK_CONFIG_JSON: ")...)
	}
	e := startEmulator(t, []string{"PEEKLOCK_CONFIG_JSON=" + bad}, jsonReady, "-o", "json", "--lenient")
	wants(t, say(t, e.devMember, 0, "queue", "list"), "good", "q ")
	wants(t, e.errs.String(), "Namespaces[0].Queues[0].Properties.LockDuration: left out", "Namespaces[0].Queues[1].Name: left out")
	e = startEmulator(t, []string{"PEEKLOCK_CONFIG_JSON=" + forwards}, jsonReady, "-o", "json", "--lenient")
	if len(e.Config.Problems) != 2 {
		t.Errorf("problems: %q, want 2", e.Config.Problems)
	}
}
