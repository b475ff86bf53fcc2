package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// What modules of Testcontainers, Aspire and NServiceBus ask of the image of the emulator, one row for each. The start of the
// image with a read-only root and a mounted Config.json is in deploy/image/try.
func TestEmulatorHasWhatToolsAskFor(t *testing.T) {
	t.Parallel()
	env := []string{"ACCEPT_EULA=N", "SQL_SERVER=sql", "MSSQL_SA_PASSWORD=secret", "SQL_WAIT_INTERVAL=0"}
	e := startEmulator(t, env, func(e *emulation) bool { return strings.Contains(e.out.String(), emulatorUp+"\n") })
	line := func(before string) string {
		_, after, _ := strings.Cut(e.out.String(), before)
		text, _, _ := strings.Cut(after, "\n")
		return text
	}
	healthURL := line("administration on ")
	at := kit.Must(url.Parse(healthURL))(t)
	messages := strings.TrimPrefix(strings.SplitN(line("Endpoint="), ";", 2)[0], "sb://")
	for row, check := range map[string]func(t *testing.T){
		"Testcontainers for .NET and Java: the line on standard output, once": func(t *testing.T) {
			if n := strings.Count(e.out.String(), emulatorUp); n != 1 || strings.Contains(e.errs.String(), emulatorUp) {
				t.Errorf("the line is there %d times", n)
			}
		},
		"Testcontainers for .NET, Go and Node, Aspire: /health answers 200": func(t *testing.T) {
			if status, body := get(t, healthURL+"/health"); status != http.StatusOK || !strings.Contains(body, `"status":"healthy"`) {
				t.Errorf("%d %s", status, body)
			}
		},
		"Testcontainers for Go: both ports are bound": func(t *testing.T) {
			for _, address := range []string{messages, at.Host} {
				conn := kit.Must(new(net.Dialer).DialContext(t.Context(), "tcp", address))(t)
				_ = conn.Close()
			}
		},
		"Testcontainers for Node: ACCEPT_EULA=N is no refusal, and the SQL server is not needed": func(t *testing.T) {
			wants(t, e.out.String(), "Ignored", "ACCEPT_EULA", "SQL_SERVER", "MSSQL_SA_PASSWORD", "SQL_WAIT_INTERVAL")
		},
		"all: ports are mapped to others": func(t *testing.T) {
			request := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, healthURL+"/queue.1?api-version=2021-05", http.NoBody))(t)
			request.Host = "localhost:32768"
			answer := kit.Must(http.DefaultClient.Do(request))(t)
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "localhost:32768/queue.1") {
				t.Errorf("%s %s %v", answer.Status, body, err)
			}
			client, err := azservicebus.NewClientFromConnectionString(connectionString("localhost:32769", auth.DevKeyName, auth.DevKey), &azservicebus.ClientOptions{CustomEndpoint: messages})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close(context.Background()) }()
			sender := kit.Must(client.NewSender("queue.1", nil))(t)
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x")}, nil); err != nil {
				t.Error(err)
			}
		},
		"NServiceBus: administration is on port 5300": func(t *testing.T) {
			if port := newEmulator(cli.Process{}).Flag("http-port").DefValue; port != "5300" {
				t.Errorf("port %s", port)
			}
		},
		"EMULATOR_HTTP_PORT selects another one": func(t *testing.T) {
			var errs bytes.Buffer
			code := run(t.Context(), cli.Process{Args: []string{"emulator"}, Env: []string{"EMULATOR_HTTP_PORT=70000"}, Out: io.Discard, Err: &errs})
			if code != cli.ExitUsage || !strings.Contains(errs.String(), "70000") {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
		},
	} {
		t.Run(row, func(t *testing.T) { t.Parallel(); check(t) })
	}
}

// Aspire starts the image with a read-only root. Without a folder for the data, the error names the mount that is missing.
func TestEmulatorNamesTheMissingMount(t *testing.T) {
	t.Setenv("TMPDIR", "/proc/none")
	var errs bytes.Buffer
	code := run(t.Context(), cli.Process{Args: []string{"emulator", "--amqp-port", "0", "--http-port", "0"}, Out: io.Discard, Err: &errs})
	if code != cli.ExitRefused {
		t.Errorf("exit code %d, want 1", code)
	}
	wants(t, errs.String(), "--tmpfs /proc/none")
}

// The limits of the official emulator that its users ask to be raised are not here: 50 entities, 10 connections, a time to live of
// an hour, no automatic deletion, no WebSocket.
func TestEmulatorHasNoneOfTheLimitsThatUsersMeet(t *testing.T) {
	t.Parallel()
	queues := []string{`{"Name":"orders"}`}
	for i := range 92 {
		queues = append(queues, fmt.Sprintf(`{"Name":"q%d","Properties":{"DefaultMessageTimeToLive":"P14D"}}`, i))
	}
	queues = append(queues, `{"Name":"idle","Properties":{"AutoDeleteOnIdle":"PT5M"}}`)
	env := []string{`PEEKLOCK_CONFIG_JSON={"UserConfig":{"Namespaces":[{"Name":"mine","Queues":[` + strings.Join(queues, ",") + `]}]}}`}
	c := dataClient{t, startEmulator(t, env, jsonReady, "-o", "json")}
	if c.e.Config.Created != 94 || len(c.e.Config.Problems) > 0 {
		t.Errorf("created %d entities, problems %q", c.e.Config.Created, c.e.Config.Problems)
	}
	_, body := c.do(200, "GET", "/v1/queues/q91", "")
	wants(t, body, `"336h0m0s"`)
	for range 24 {
		conn := kit.Must(amqp.Dial(t.Context(), "amqp://"+c.e.AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(auth.DevKeyName, auth.DevKey)}))(t)
		defer func() { _ = conn.Close() }()
	}
	roundTrip(t, c.e.ConnectionString, overWebSocket(t, "ws", "AMQPWSB10", nil))
	c.do(200, "POST", "/clock/advance?by=10m", "")
	kit.Eventually(t, "the idle queue is deleted", func() bool {
		status, _ := get(t, c.e.Admin+"/v1/queues/idle")
		return status == http.StatusNotFound
	})
}
