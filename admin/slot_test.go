package admin

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
)

// Requests of one owner use at most half of the slots, so that those of another owner find one; an operator has all.
func TestOwnersShareTheSlots(t *testing.T) {
	t.Parallel()
	all := account.New(account.For(64 << 20))
	slots := make(chan struct{}, requestsMax)
	in := func(owner string) (*slot, error) {
		held, ok := acquireSlot(slots)
		if !ok {
			t.Fatal("no slot")
		}
		err := held.assign(all.Open(account.Owner{Namespace: 1, Key: owner}), work.Account{})
		if err != nil {
			held.finish(0)
		}
		return held, err
	}
	var greedy []*slot
	for {
		held, err := in("greedy")
		if err != nil {
			if !errors.Is(err, fsm.ServerBusy) || !strings.Contains(err.Error(), "HTTP requests in progress") {
				t.Error(err)
			}
			break
		}
		greedy = append(greedy, held)
	}
	if len(greedy) != requestsMax/2 {
		t.Errorf("one owner has %d slots of %d", len(greedy), requestsMax)
	}
	honest, err := in("honest")
	if err != nil {
		t.Error(err)
	}
	honest.release()
	if err := honest.reacquire(t.Context()); err != nil {
		t.Error(err)
	}
	honest.finish(1000)
	for _, held := range greedy {
		held.finish(0)
		held.release() // has no effect
	}
	if len(slots) != 0 || all.Used(account.HTTPRequests) != 0 {
		t.Errorf("%d slots and %d requests at the end", len(slots), all.Used(account.HTTPRequests))
	}
}

// Clients that ask for long answers and do not read them hold no slots, and at most their share of the bytes; further answers to
// them are refused, and nobody else is. What they held is released when they have gone.
func TestUnreadAnswersCountForTheirOwner(t *testing.T) {
	t.Parallel()
	all := account.New(account.For(64 << 20))
	answer := make([]byte, 6<<20) // exceeds the buffers of a connection
	s := serveBoth(t, func(c *Config) {
		c.Accounts = all
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
		c.PublicMetrics = c.Metrics
	})
	const clients = 140
	refused := make(chan string, clients)
	var conns []net.Conn
	for range clients {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		go func() {
			status := make([]byte, len("HTTP/1.1 503"))
			_, _ = io.ReadFull(conn, status)
			refused <- string(status)
		}()
	}
	count := make(map[string]int)
	for range clients {
		count[<-refused]++
	}
	if count["HTTP/1.1 503"] != clients-1 || count["HTTP/1.1 200"] != 1 {
		t.Errorf("answers %v", count)
	}
	if held := all.Used(account.HTTPBytes); held != int64(len(answer)) || len(s.server.requests) != 0 {
		t.Errorf("%d bytes and %d slots are held", held, len(s.server.requests))
	}
	sign := func(r *http.Request) {
		r.Header.Set("Authorization", auth.Sign("http://localhost/", "root", "root-secret", time.Now().Add(time.Minute)))
	}
	for range 20 {
		if status, body := s.get(t, s.tcp, "localhost", "/v1/queues", sign); status != 200 {
			t.Error(status, body)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	until(t, func() bool { return all.Used(account.HTTPBytes) == 0 })
}
