package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/audit"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/test/kit"
)

// startAlone runs a cluster of one member, until the test ends or stop is called.
func startAlone(t testing.TB, args ...string) (m devMember, log *kit.LogLines, stop func()) {
	t.Helper()
	gossip := kit.Must(freeGossipPort(t.Context()))(t)
	args = append([]string{
		"serve", "--name", "m", "--dir", kit.MemoryDir(t), "--expect", "1", "--partitions", "1",
		"--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--gossip", gossip,
	}, args...)
	ctx, cancel := context.WithCancel(context.Background())
	log, code := &kit.LogLines{}, make(chan int, 1)
	go func() {
		code <- run(ctx, cli.Process{Args: args, In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: log})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if c := <-code; c != 0 {
			t.Error("exit code", c, log.String())
		}
	})
	t.Cleanup(stop)
	kit.Eventually(t, "ready", func() bool { return strings.Contains(log.String(), "member became ready") })
	field := func(name string) string {
		_, after, _ := strings.Cut(log.String(), " "+name+"=")
		value, _, _ := strings.Cut(after, " ")
		return value
	}
	return devMember{AMQP: field("amqp"), Admin: "http://" + field("http")}, log, stop
}

// plainLogin authenticates over AMQP by SASL PLAIN.
func plainLogin(ctx context.Context, address, name, secret string) error {
	conn, err := amqp.Dial(ctx, "amqp://"+address, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(name, secret)})
	if err != nil {
		return err
	}
	return conn.Close()
}

// A client that guesses keys is told to retry later, over HTTP and AMQP, and causes few lines in the audit log.
// Meanwhile a valid key from the same address is accepted.
func TestGuessedKeysDoNotLockClientsOut(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	const secret = "the-key-of-the-operators"
	auditLog := filepath.Join(t.TempDir(), "audit.log")
	settings := fmt.Sprintf("key: %s\nkeys:\n  - {name: old, primary: short, rights: send}\n", secret)
	m, log, stop := startAlone(t, "--config", kit.WriteFile(t, settings), "--login-failures", "3", "--login-failures-per-minute", "1", "--login-delay", "100ms", "--audit-log", auditLog)
	wants(t, log.String(), `msg="short configured key found" name=old bytes_min=16`)

	began := time.Now()
	ctx, end := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	for range 16 {
		flood.Go(func() {
			for ctx.Err() == nil {
				_ = plainLogin(ctx, m.AMQP, auth.DevKeyName, "wrong")
			}
		})
	}
	ask := func(key string) (status int, retryAfter string) {
		r := kit.Must(http.NewRequestWithContext(ctx, http.MethodGet, m.Admin+"/v1/queues", nil))(t)
		r.Header.Set("Authorization", auth.Sign(m.Admin, auth.DevKeyName, key, time.Now().Add(time.Hour)))
		w := kit.Must(http.DefaultClient.Do(r))(t)
		_ = w.Body.Close()
		return w.StatusCode, w.Header.Get("Retry-After")
	}
	kit.Eventually(t, "refused over HTTP as a client that fails too often", func() bool {
		status, after := ask("wrong")
		return status == http.StatusTooManyRequests && after != ""
	})
	kit.Eventually(t, "refused by SASL with the code for later", func() bool {
		err := plainLogin(ctx, m.AMQP, auth.DevKeyName, "wrong")
		return err != nil && strings.Contains(err.Error(), "0x4") // sys-temp
	})
	if err := cbsLogin(ctx, m.AMQP, auth.DevKeyName, "wrong"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a token: %v", err)
	}
	for range 20 {
		if err := plainLogin(ctx, m.AMQP, auth.DevKeyName, secret); err != nil {
			t.Errorf("a valid password: %v", err)
		}
		if err := plainLogin(ctx, m.AMQP, "old", "short"); err != nil {
			t.Errorf("a short key of the configuration: %v", err)
		}
		if err := cbsLogin(ctx, m.AMQP, auth.DevKeyName, secret); err != nil {
			t.Errorf("a valid token: %v", err)
		}
		if status, _ := ask(secret); status != http.StatusOK {
			t.Errorf("a valid signature: %d", status)
		}
	}
	end()
	flood.Wait()
	stop()
	most := audit.RefusalsMax * (1 + int(time.Since(began)/time.Minute)) // these lines in a minute
	data := kit.Must(os.ReadFile(auditLog))(t)
	told, omitted := 0, 0
	for line := range strings.Lines(string(data)) {
		var l struct {
			Event, Client string
			Count         int
		}
		kit.OK(t, json.Unmarshal([]byte(line), &l))
		switch l.Event {
		case "login_refused":
			told++
		case "refusals_omitted":
			if l.Client != "127.0.0.1" {
				t.Errorf("of %s", l.Client)
			}
			omitted += l.Count
		}
	}
	if told < audit.RefusalsMax || told > most || omitted == 0 {
		t.Errorf("%d lines, %d omitted", told, omitted)
	}
}

// BenchmarkLoginInFlood measures logins with a valid key, including the connection, while 64 concurrent
// connections from the same address continuously try wrong ones.
func BenchmarkLoginInFlood(b *testing.B) {
	const secret = "the-key-of-the-operators"
	m, _, _ := startAlone(b, "--key-file", writtenKey(b, secret))
	for _, flooding := range []int{0, 64} {
		b.Run(fmt.Sprintf("wrong=%d", flooding), func(b *testing.B) {
			ctx, end := context.WithCancel(b.Context())
			var flood sync.WaitGroup
			var wrong atomic.Int64
			for range flooding {
				flood.Go(func() {
					for ctx.Err() == nil {
						_ = plainLogin(ctx, m.AMQP, auth.DevKeyName, "wrong")
						wrong.Add(1)
					}
				})
			}
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := plainLogin(ctx, m.AMQP, auth.DevKeyName, secret); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			b.ReportMetric(float64(wrong.Load())/b.Elapsed().Seconds(), "wrong/s")
			end()
			flood.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

func writtenKey(b *testing.B, secret string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "key")
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// cbsLogin puts a token to $cbs.
func cbsLogin(ctx context.Context, address, name, secret string) error {
	conn, err := amqp.Dial(ctx, "amqp://"+address, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	return (&gateway.Session{Conn: conn, Session: session}).PutToken(ctx, "amqp://127.0.0.1/", name, secret)
}
