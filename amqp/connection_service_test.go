package amqp

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// expiredTokenError is the error of an Authorizer for an expired token.
type expiredTokenError struct{ at time.Time }

func (expiredTokenError) Error() string { return "ExpiredToken: The token is expired." }

func (e expiredTokenError) ExpiredAt() time.Time { return e.at }

func (expiredTokenError) Unwrap() error { return fsm.Unauthorized }

func TestExpiredTokenIsRefusedInTheWordsOfTheService(t *testing.T) {
	t.Parallel()
	keys := &scriptedAuthorizer{err: expiredTokenError{time.Unix(1, 0)}}
	_, p := piped(t, newFakeBroker("orders"), keys.through)
	p.unknown()
	p.sender(0, "$cbs")
	p.receiver(1, "$cbs")
	p.credit(1, 0, 10)
	p.transfer(0, 0, requestMessage(wire.Properties{MessageID: "1"}, wire.Map{
		{Key: "operation", Value: "put-token"}, {Key: "type", Value: login.SharedAccessKind}, {Key: "name", Value: "orders"},
	}, login.SharedAccessPrefix+"sr=x"))
	p.accepted()
	r := p.response()
	description, _ := r.properties.Get("status-description").(string)
	if r.properties.Get("status-code") != int32(401) || !strings.HasPrefix(description, "ExpiredToken: The token is expired.") {
		t.Errorf("status %v %q", r.properties.Get("status-code"), description)
	}
}

// TestSecondTokenSenderIsRefused checks that a connection has one sender to $cbs at a time, on any of its sessions.
// The Go client begins a new connection when it is refused.
func TestSecondTokenSenderIsRefused(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker("orders"))
	p.sendOn(1, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	expect[*wire.Begin](p)
	attach := func(channel uint16, name string) {
		p.sendOn(channel, &wire.Attach{Name: name, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "$cbs"}, InitialDeliveryCount: new(uint32)})
	}
	attach(0, "first")
	expect[*wire.Attach](p)
	expect[*wire.Flow](p)
	attach(1, "second")
	if cause := p.refusedLink(); cause.Condition != wire.ConditionNotAllowed {
		t.Errorf("second sender: %+v", cause)
	}
	p.sendOn(1, &wire.Attach{Name: "replies", Handle: 7, Role: wire.RoleReceiver, Source: &wire.Source{Address: "$cbs"}, Target: &wire.Target{}})
	expect[*wire.Attach](p)

	// The end of a session frees the place before the next frame is read.
	b := wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.End{})
	p.write(wire.AppendFrame(b, wire.FrameAMQP, 1, &wire.Attach{Name: "third", Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "$cbs"}, InitialDeliveryCount: new(uint32)}))
	expect[*wire.End](p)
	if a := expect[*wire.Attach](p); a.Name != "third" || a.Target == nil {
		t.Errorf("after the end of the session: %+v", a)
	}
	expect[*wire.Flow](p)

	// The same link attached again is no second one.
	p.sendOn(1, &wire.Attach{Name: "third", Handle: 1, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "$cbs"}, InitialDeliveryCount: new(uint32)})
	if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionStolen {
		t.Errorf("detach %+v", d)
	}
	if a := expect[*wire.Attach](p); a.Handle != 1 || a.Target == nil {
		t.Errorf("attach %+v", a)
	}
}

// busyAtFirst is a broker that is busy for a while, as a cluster is in which an entity was just created.
type busyAtFirst struct {
	*fakeBroker

	until  time.Time
	asked  atomic.Int32
	accept atomic.Int32
}

func (b *busyAtFirst) Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	b.asked.Add(1)
	if time.Now().Before(b.until) {
		return fsm.EntityRef{}, fsm.ServerBusy
	}
	return b.fakeBroker.Resolve(ctx, namespace, path)
}

func (b *busyAtFirst) AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, Session)) func() {
	if b.accept.Add(1) < 3 {
		done(fsm.ServerBusy, nil)
		return func() {}
	}
	return b.fakeBroker.AcceptSession(at, wants, receiveAndDelete, wait, done)
}

func TestAttachWaitsWhileTheBrokerIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busyAtFirst{fakeBroker: newFakeBroker("orders"), until: time.Now().Add(time.Second)}
		p := loggedIn(t, b)
		p.sender(0, "orders")
		if n := b.asked.Load(); n < 2 || n > 12 {
			t.Errorf("asked %d times within a second", n)
		}
		b.until = time.Now().Add(time.Hour)
		p.send(&wire.Attach{Name: "late", Handle: 1, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "orders"}, InitialDeliveryCount: new(uint32)})
		since := time.Now()
		if cause := p.refusedLink(); cause.Condition != wire.ConditionServerBusy {
			t.Errorf("a broker that stays busy: %+v", cause)
		}
		if took := time.Since(since); took > attachBusyMax {
			t.Errorf("refused after %s", took)
		}
		_ = p.net.Close()
	})
}

func TestSessionAttachWaitsWhileTheBrokerIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busyAtFirst{fakeBroker: newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 10, RequiresSession: true}, "orders")}
		p := loggedIn(t, b)
		p.receiver(0, "orders", func(a *wire.Attach) { a.Source.Filter = wire.Map{{Key: sessionFilterKey, Value: "one"}} })
		if n := b.accept.Load(); n != 3 {
			t.Errorf("asked for the session %d times", n)
		}
		_ = p.net.Close()
	})
}

// countingConn counts the acknowledgements that the gateway requests.
type countingConn struct {
	net.Conn

	count atomic.Int32
}

func (c *countingConn) AcknowledgeAtOnce() { c.count.Add(1) }

// TestPartsOfADeliveryAreAcknowledgedAtOnce checks that the gateway asks for acknowledgements while a delivery is
// incomplete, and not otherwise.
func TestPartsOfADeliveryAreAcknowledgedAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := piped(t, newFakeBroker("orders"))
	ours, theirs := net.Pipe()
	counted := &countingConn{Conn: theirs}
	second := &peer{TB: t, net: ours, reader: wire.NewReader(ours, 1<<20), ended: make(chan struct{})}
	go func() { defer close(second.ended); s.Serve(context.Background(), counted) }()
	t.Cleanup(func() { _ = ours.Close(); <-second.ended })
	second.login()
	second.sender(0, "orders")
	before := counted.count.Load() // the login comes in one write, which the small read buffer splits
	for id := range uint32(10) {
		second.transfer(0, id, encodedMessage(t, []byte("small")))
		second.accepted()
	}
	if n := counted.count.Load() - before; n != 0 {
		t.Errorf("%d acknowledgements of small messages", n)
	}

	large := encodedMessage(t, bytes.Repeat([]byte{'x'}, 40_000))
	frame := wire.AppendTransfer(nil, 0, &wire.Transfer{DeliveryID: new(uint32(10)), DeliveryTag: []byte{1}, MessageFormat: new(uint32)}, large)
	second.write(frame[:30_000])
	second.write(frame[30_000:])
	second.accepted()
	inFrame := counted.count.Load() - before
	if inFrame == 0 {
		t.Error("no acknowledgement within a frame")
	}
	second.transfer(0, 11, large[:100], func(f *wire.Transfer) { f.More = true })
	second.transfer(0, 11, large[100:])
	second.accepted()
	if n := counted.count.Load() - before - inFrame; n == 0 {
		t.Error("no acknowledgement between the frames of a delivery")
	}
}
