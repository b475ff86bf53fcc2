package admin

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
		err := held.assign(all.Open(account.Owner{Namespace: 1, Key: owner}), nil)
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

// An answer counts before it is built. An owner that holds its share waits, and is refused after a while; another one is not.
func TestAnswersCountBeforeTheyAreBuilt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := account.New(account.For(64 << 20)) // 8 MiB for HTTP
		slots := make(chan struct{}, requestsMax)
		in := func(owner string) *slot {
			held, _ := acquireSlot(slots)
			if err := held.assign(all.Open(account.Owner{Namespace: 1, Key: owner}), nil); err != nil {
				t.Fatal(err)
			}
			return held
		}
		var greedy []*slot
		for range 4 {
			held := in("greedy")
			if err := held.reserve(t.Context(), 100<<20); err != nil || held.reserved != 1<<20 {
				t.Fatalf("%d bytes are reserved: %v", held.reserved, err)
			}
			greedy = append(greedy, held)
		}
		late := in("greedy")
		began := time.Now()
		if err := late.reserve(t.Context(), 1<<20); !errors.Is(err, fsm.ServerBusy) || time.Since(began) < answerShareWithin {
			t.Errorf("a fifth answer after %v: %v", time.Since(began), err)
		}
		honest := in("honest")
		if err := honest.reserve(t.Context(), 1<<20); err != nil {
			t.Error(err)
		}
		if !honest.exchange(100) || all.Used(account.HTTPBytes) != 4<<20+100 {
			t.Errorf("%d bytes are held", all.Used(account.HTTPBytes))
		}
		all.Open(account.Owner{Namespace: 1, Key: "honest"}).Release(account.HTTPBytes, 100)
		for _, held := range append(greedy, late, honest) {
			held.finish(0)
		}
		if all.Used(account.HTTPBytes) != 0 || len(slots) != 0 {
			t.Errorf("%d bytes and %d slots are held at the end", all.Used(account.HTTPBytes), len(slots))
		}
	})
}

// Requests of one key at the same time have one account, from however many addresses they come: what they hold is counted
// together, and they have one rate and one burst.
func TestRequestsOfAKeyAreOneAccount(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	s.server.onClose(func() {})()
	synctest.Test(t, func(t *testing.T) {
		const requests, units, answer, seconds = 30, 3000, 1 << 10, (30*(3000+readCost) - workBurst) / workPerSecond
		c := s.server.core
		c.work = work.NewShared(work.NewLimiter(1<<30, 1<<30))
		c.config.Accounts = account.New(account.For(1 << 30))
		owner, done := account.Owner{Namespace: 1, Key: "key"}, make(chan struct{})
		handler := c.limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := c.charge(r, owner, workPerSecond, workBurst); err != nil {
				t.Error(err)
			}
			if err := expect(r, units, answer); err != nil {
				t.Error(err)
			}
			<-done
		}))
		start := time.Now()
		var all sync.WaitGroup
		for i := range requests {
			r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/queues", nil)
			r.RemoteAddr = fmt.Sprintf("10.0.%d.1:1", i)
			all.Go(func() { handler.ServeHTTP(httptest.NewRecorder(), r) })
		}
		synctest.Wait()
		same := c.config.Accounts.Open(owner)
		for same.Held(account.HTTPBytes) < requests*answer {
			<-time.After(10 * time.Millisecond)
		}
		if d := time.Since(start); d < (seconds-1)*time.Second || d > (seconds+1)*time.Second {
			t.Errorf("the requests were paid after %v, want about %d s", d, seconds)
		}
		if n := same.Held(account.HTTPRequests); n != requests {
			t.Errorf("the key holds %d slots, want %d", n, requests)
		}
		close(done)
		all.Wait()
		for r := range account.Links {
			if n := c.config.Accounts.Used(r); n != 0 {
				t.Errorf("%d %s at the end", n, r)
			}
		}
		same.Close()
	})
}
