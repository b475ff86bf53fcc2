package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// from is one end of a pipe with the remote address of an IP client.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

// connectFrom adds a connection from an address; it returns false if the connection is rejected.
func connectFrom(t *testing.T, s *Server, ip string) (net.Conn, bool) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() })
	c, ok := s.admit(t.Context(), from{theirs, ip})
	if ok {
		go c.serve(context.Background())
	}
	return ours, ok
}

func TestConnectionsPerPeerMax(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log auditCapture
		s, _ := piped(t, newFakeBroker(), func(c *Config) {
			c.ConnectionsPerPeerMax, c.Logger = 2, slog.New(slog.NewJSONHandler(&log, nil))
		})
		gone, _ := connectFrom(t, s, "192.0.2.1")
		for i, c := range []struct {
			ip string
			ok bool
		}{
			{"::ffff:192.0.2.1", true}, // the same address
			{"192.0.2.1", false},
			{"192.0.2.2", true},
			{"2001:db8::1", true},
			{"2001:db8::2:1", true}, // of the same /64
			{"2001:db8::3", false},
			{"2001:db8:0:1::1", true},
		} {
			if _, ok := connectFrom(t, s, c.ip); ok != c.ok {
				t.Errorf("%d: %s: %v", i, c.ip, ok)
			}
		}
		if lines := log.lines(t); len(lines) != 1 || lines[0]["count"] != 1.0 {
			t.Errorf("told %v: want once in %v", lines, rejectLogEvery)
		}
		time.Sleep(rejectLogEvery) //nolint:forbidigo // of the bubble's clock
		if _, ok := connectFrom(t, s, "192.0.2.1"); ok {
			t.Error("one too many")
		}
		if lines := log.lines(t); len(lines) != 2 || lines[1]["count"] != 2.0 {
			t.Errorf("told %v", lines)
		}
		_ = gone.Close()
		synctest.Wait()
		if _, ok := connectFrom(t, s, "192.0.2.1"); !ok {
			t.Error("a connection that is over still counts")
		}
		if n := s.Connections(); n != 7 { // including the pipe, which has no address
			t.Errorf("%d connections", n)
		}
	})
	if DefaultConfig().ConnectionsPerPeerMax != connectionsPerPeerMaxDefault {
		t.Error("no limit by default")
	}
}

// Addresses without connections leave no entries.
func TestAddressesWithoutConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := piped(t, newFakeBroker())
		for i := range 100 {
			c, _ := connectFrom(t, s, fmt.Sprint("192.0.2.", i))
			_ = c.Close()
		}
		synctest.Wait()
		if n, sources := s.limiter.Len(), s.limiter.Sources(); n != 1 || sources != 1 {
			t.Errorf("%d connections of %d addresses are counted", n, sources)
		}
	})
}

// When a member is full, it closes the oldest unauthenticated connection; authenticated connections are kept.
func TestFullMemberClosesTheOldestUnauthenticated(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"), func(c *Config) { c.ConnectionsMax = 3 })
	p.login()
	oldest := connect(t, s).unknown()
	newer := connect(t, s).unknown()
	third := connect(t, s)
	oldest.gone()
	<-oldest.ended
	third.login()
	newer.putToken("sb://h/", 202)
	connect(t, s).gone() // all are authenticated now
	for _, one := range []*peer{p, newer, third} {
		one.undisturbed()
	}
	if n := s.Connections(); n != 3 {
		t.Errorf("%d connections", n)
	}
	_, _ = newer.net.Close(), third.net.Close()
}

// When a member is full, unauthenticated connections of an address that has many of them replace each other,
// and a slow client of another address is kept.
func TestFullMemberClosesConnectionsOfTheLargestAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 4 // the pipe has no address
		s, p := piped(t, newFakeBroker(), func(c *Config) { c.ConnectionsMax = most })
		p.login()
		slow, _ := connectFrom(t, s, "192.0.2.1")
		var crowd []net.Conn
		for range 10 {
			c, ok := connectFrom(t, s, "192.0.2.2")
			if !ok {
				t.Fatal("turned away")
			}
			crowd = append(crowd, c)
			synctest.Wait()
		}
		open := func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		for i, c := range crowd {
			if kept := i >= len(crowd)-most+2; open(c) != kept {
				t.Errorf("connection %d of the crowd: kept %v, want %v", i, !kept, kept)
			}
		}
		if !open(slow) {
			t.Error("the slow client was cut off")
		}
	})
}

// The gateway holds little memory for an unauthenticated connection, and gives its client advice.
func TestUnauthenticatedConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(p *peer){
		"64 sessions": func(p *peer) {
			for channel := range uint16(unauthenticatedSessionsMax) {
				p.sendOn(channel+1, &wire.Begin{})
				if channel+1 < unauthenticatedSessionsMax {
					expect[*wire.Begin](p)
				}
			}
		},
		"128 links": func(p *peer) {
			for handle := range uint32(unauthenticatedLinksMax) {
				p.receiver(handle, address.CBS)
			}
			p.send(&wire.Attach{Name: "more", Handle: unauthenticatedLinksMax, Role: wire.RoleReceiver, Source: &wire.Source{Address: address.CBS}})
		},
		"64 refused links": func(p *peer) {
			for range unauthenticatedRefusalsMax {
				p.send(&wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}})
				p.refusedLink()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p := piped(t, newFakeBroker("orders"))
			p.unknown()
			act(p)
			e := expect[*wire.Close](p).Error
			if e == nil || e.Condition != wire.ConditionResourceLimitExceeded || !strings.Contains(e.Description, "may have at most "+name+".") {
				t.Errorf("closed with %+v", e)
			}
			p.send(&wire.Close{})
			p.gone()
		})
	}
}

// These limits no longer apply after a token is put.
func TestUnauthenticatedLimitsEndWithTheFirstToken(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"), (&scriptedAuthorizer{grants: map[string]Grant{ruleName: {Rights: fsm.Send}}}).through)
	for channel := range uint16(unauthenticatedSessionsMax) {
		p.sendOn(channel+1, &wire.Begin{})
		expect[*wire.Begin](p)
	}
	for range unauthenticatedRefusalsMax {
		p.send(&wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}})
		p.refusedLink()
	}
	p.undisturbed()
}

// Tokens that are not verified yet stop the reader of an unauthenticated connection after
// unauthenticatedBytesMax.
func TestUnauthenticatedBytesInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := piped(t, newFakeBroker(), func(c *Config) { c.Authorizer = slowKeys{fakeAuthorizer{}} })
		p.unknown()
		p.sender(0, address.CBS)
		token := requestMessage(wire.Properties{MessageID: "m"}, wire.Map{{Key: "operation", Value: "put-token"}, {Key: "name", Value: "sb://h/"}}, strings.Repeat("t", tokenBytesMax-1024))
		sent := 0
		for stopped := false; !stopped; sent++ {
			if sent*len(token) > 4*unauthenticatedBytesMax {
				t.Fatal("it is read on and on")
			}
			id := uint32(sent)
			yes := true
			b := wire.AppendTransfer(nil, 0, &wire.Transfer{Handle: 0, DeliveryID: &id, DeliveryTag: []byte{1}, Settled: &yes}, token)
			_ = p.net.SetWriteDeadline(time.Now().Add(time.Second)) // clock of the bubble: the deadline passes when all goroutines wait
			_, err := p.net.Write(b)
			stopped = err != nil
		}
		c := onlyConn(t, s)
		c.mu.Lock()
		n := c.inFlightBytes
		c.mu.Unlock()
		if n < unauthenticatedBytesMax || n > unauthenticatedBytesMax+tokenBytesMax {
			t.Errorf("%d bytes in flight after %d tokens", n, sent)
		}
	})
}

// What is sent in part is limited too, over all links together.
func TestUnauthenticatedPartialBytes(t *testing.T) {
	t.Parallel()
	_, p := piped(t, newFakeBroker())
	p.unknown()
	for handle := range uint32(unauthenticatedBytesMax/coordinatorBytesMax + 1) {
		p.coordinator(handle)
		p.transfer(handle, handle, make([]byte, coordinatorBytesMax), func(t *wire.Transfer) { t.More = true })
	}
	if d := expect[*wire.Detach](p); d.Handle != unauthenticatedBytesMax/coordinatorBytesMax || d.Error.Condition != wire.ConditionResourceLimitExceeded {
		t.Errorf("detach %+v", d)
	}
}

func TestTokenBytesMax(t *testing.T) {
	t.Parallel()
	_, p := piped(t, newFakeBroker())
	p.unknown()
	p.sender(0, address.CBS)
	p.transfer(0, 0, make([]byte, 40<<10), func(t *wire.Transfer) { t.More = true })
	p.transfer(0, 0, make([]byte, 40<<10))
	p.refused(0, wire.RoleReceiver, wire.ConditionMessageSizeExceeded)
}

// An unused connection is closed, as in the cloud; SDKs connect again.
func TestLinklessConnectionIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newFakeBroker("orders"))
		p.elapse(linklessWithin - time.Minute)
		p.sender(0, "orders")
		p.elapse(2 * linklessWithin) // a connection with a link may be idle for any time
		p.send(&wire.Detach{Handle: 0, Closed: true})
		expect[*wire.Detach](p)
		before := time.Now()
		p.elapse(linklessWithin - time.Minute)
		c := expect[*wire.Close](p)
		if d := time.Since(before); c.Error.Condition != wire.ConditionConnectionForced || d < linklessWithin || d > linklessWithin+time.Second {
			t.Errorf("closed after %v with %+v", d, c.Error)
		}
	})
}

// Buffers that traffic has enlarged are released at a heartbeat.
func TestIdleConnectionReleasesBuffers(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"))
	p.login()
	p.sender(0, "orders")
	p.transfer(0, 0, encodedMessage(t, make([]byte, 60<<10)))
	p.accepted()
	c := onlyConn(t, s)
	p.undisturbed()
	c.mu.Lock()
	grown := cap(c.idBuffer)
	c.mu.Unlock()
	p.send(nil)
	p.undisturbed()
	c.mu.Lock()
	c.out = make([]byte, 0, bufferBytesKept)
	c.unlock()
	for range 4 { // the writer has two buffers
		c.mu.Lock()
		c.emit(0, nil)
		c.unlock()
		if f := p.next(); f.Body != nil {
			t.Fatalf("%T", f.Body)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cap(c.out) > bufferBytesIdle {
		t.Errorf("a buffer of %d bytes for heartbeats", cap(c.out))
	}
	if grown < 60<<10 || c.idBuffer != nil || c.scratch != nil {
		t.Errorf("%d bytes before, %d and %d after", grown, cap(c.idBuffer), cap(c.scratch))
	}
}
