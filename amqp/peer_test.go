package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// peer is a client of bare frames, for input that a well-behaved library never sends.
type peer struct {
	testing.TB
	net    net.Conn
	reader *wire.Reader
	ended  chan struct{} // closed when Serve has returned
}

// piped starts a Server without listener and connects over a pipe.
func piped(t testing.TB, b Broker, change ...func(*Config)) (*Server, *peer) {
	t.Helper()
	config := DefaultConfig()
	config.Broker, config.Authorizer = b, fakeAuthorizer{Grant{Rights: 7}}
	for _, c := range change {
		c(&config)
	}
	s, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	p := connect(t, s)
	t.Cleanup(func() {
		_ = p.net.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		_ = s.Close(ctx)
		checkNothingHeld(t, s)
	})
	return s, p
}

// loggedIn is the client of a new Server, with its connection and its first session open.
func loggedIn(t testing.TB, b Broker, change ...func(*Config)) *peer {
	t.Helper()
	_, p := piped(t, b, change...)
	p.login()
	return p
}

// receiving is a client that has received the n messages of the queue "orders" over the link 0, as the deliveries 0 to n-1.
func receiving(t testing.TB, n int) (*fakeBroker, *peer) {
	t.Helper()
	h := newFakeBroker("orders")
	h.messages(t, "orders", n)
	p := loggedIn(t, h)
	p.receiver(0, "orders")
	p.credit(0, 0, uint32(n))
	p.deliveries(n)
	return h, p
}

// connect adds a connection to a Server.
func connect(t testing.TB, s *Server) *peer {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() }) // otherwise Close waits for a peer that does not read
	p := &peer{TB: t, net: ours, reader: wire.NewReader(ours, 1<<20), ended: make(chan struct{})}
	go func() { defer close(p.ended); s.Serve(context.Background(), theirs) }()
	return p
}

func (p *peer) write(b []byte) {
	p.Helper()
	_ = p.net.SetDeadline(time.Now().Add(10 * time.Minute)) // of the bubble's clock, if there is one
	if _, err := p.net.Write(b); err != nil {
		p.Fatal(err)
	}
}

func (p *peer) send(frames ...wire.Performative) {
	p.Helper()
	p.sendOn(0, frames...)
}

func (p *peer) sendOn(channel uint16, frames ...wire.Performative) {
	p.Helper()
	var b []byte
	for _, f := range frames {
		b = wire.AppendFrame(b, wire.FrameAMQP, channel, f)
	}
	p.write(b)
}

// transfer sends one frame of a delivery on handle.
func (p *peer) transfer(handle, id uint32, payload []byte, change ...func(*wire.Transfer)) {
	p.Helper()
	t := wire.Transfer{Handle: handle, DeliveryID: &id, DeliveryTag: []byte{byte(id)}, MessageFormat: new(uint32)}
	for _, c := range change {
		c(&t)
	}
	p.write(wire.AppendTransfer(nil, 0, &t, payload))
}

func (p *peer) next() wire.Frame {
	p.Helper()
	_ = p.net.SetDeadline(time.Now().Add(10 * time.Minute))
	f, err := p.reader.ReadFrame()
	if err != nil {
		p.Fatal(err)
	}
	return f
}

// expect reads the next frame that is not a heartbeat; it must be a T.
func expect[T wire.Performative](p *peer) T {
	p.Helper()
	for {
		f := p.next()
		if f.Body == nil {
			continue
		}
		body, ok := f.Body.(T)
		if !ok {
			p.Fatalf("got %T %+v, want %T", f.Body, f.Body, body)
		}
		return body
	}
}

// gone reads until the connection ends; only heartbeats may be received.
func (p *peer) gone() {
	p.Helper()
	_ = p.net.SetDeadline(time.Now().Add(10 * time.Minute))
	for {
		f, err := p.reader.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				p.Errorf("end of connection: %v", err)
			}
			return
		}
		if f.Body != nil {
			p.Errorf("%T %+v before the end", f.Body, f.Body)
		}
	}
}

func (p *peer) header(want string) {
	p.Helper()
	h, err := p.reader.ReadHeader()
	if err != nil || string(h[:]) != want {
		p.Fatalf("header %q, %v; want %q", h, err, want)
	}
}

// login sends everything up to begin in one write, as a pipelining client does.
func (p *peer) login(change ...func(*wire.Open, *wire.Begin)) *peer {
	p.Helper()
	open, begin := &wire.Open{ContainerID: "test"}, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000}
	for _, c := range change {
		c(open, begin)
	}
	b := []byte(headerSASL)
	b = wire.AppendFrame(b, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: login.MechanismPlain, InitialResponse: []byte("\x00" + ruleName + "\x00" + ruleKey)})
	b = append(b, headerAMQP...)
	b = wire.AppendFrame(b, wire.FrameAMQP, 0, open)
	b = wire.AppendFrame(b, wire.FrameAMQP, 0, begin)
	done := make(chan struct{})
	go func() { defer close(done); p.write(b) }()
	p.header(headerSASL)
	expect[*wire.SASLMechanisms](p)
	if o := expect[*wire.SASLOutcome](p); o.Code != 0 {
		p.Fatalf("outcome %d", o.Code)
	}
	p.header(headerAMQP)
	expect[*wire.Open](p)
	expect[*wire.Begin](p)
	<-done
	return p
}

// sender attaches a link on which the peer sends, and reads the credit.
func (p *peer) sender(handle uint32, address string, change ...func(*wire.Attach)) *wire.Flow {
	p.Helper()
	a := &wire.Attach{Name: fmt.Sprint("s", handle), Handle: handle, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: address}, InitialDeliveryCount: new(uint32)}
	for _, c := range change {
		c(a)
	}
	p.send(a)
	a = expect[*wire.Attach](p)
	if a.Target == nil || a.MaxMessageSize == nil || *a.MaxMessageSize == 0 {
		p.Fatalf("attach %+v", a)
	}
	return expect[*wire.Flow](p)
}

// receiver attaches a link on which the peer receives.
func (p *peer) receiver(handle uint32, address string, change ...func(*wire.Attach)) *wire.Attach {
	p.Helper()
	a := &wire.Attach{Name: fmt.Sprint("r", handle), Handle: handle, Role: wire.RoleReceiver, Source: &wire.Source{Address: address}, Target: &wire.Target{Address: "here"}}
	for _, c := range change {
		c(a)
	}
	p.send(a)
	a = expect[*wire.Attach](p)
	if a.Source == nil {
		p.Fatalf("refused: %+v", expect[*wire.Detach](p).Error)
	}
	return a
}

// credit sends a flow for a link on which the peer receives.
func (p *peer) credit(handle, count, credit uint32, change ...func(*wire.Flow)) {
	p.Helper()
	f := &wire.Flow{NextIncomingID: new(uint32), IncomingWindow: 5000, OutgoingWindow: 5000, Handle: &handle, DeliveryCount: &count, LinkCredit: &credit}
	for _, c := range change {
		c(f)
	}
	p.send(f)
}

// accepted reads a disposition for deliveries of the peer and returns its range.
func (p *peer) accepted() (first, last uint32) {
	p.Helper()
	d := expect[*wire.Disposition](p)
	if _, ok := d.State.(*wire.Accepted); !ok || !d.Settled || d.Role != wire.RoleReceiver {
		p.Fatalf("disposition %+v state %+v", d, d.State)
	}
	return d.First, *d.Last
}

// refused reads a disposition that rejects one delivery.
func (p *peer) refused(id uint32, role wire.Role, condition wire.Symbol) *wire.Error {
	p.Helper()
	return p.rejected(id, role, condition, true)
}

// rejected is refused for a delivery that is settled or, in a transaction, stays open.
func (p *peer) rejected(id uint32, role wire.Role, condition wire.Symbol, settled bool) *wire.Error {
	p.Helper()
	d := expect[*wire.Disposition](p)
	r, ok := d.State.(*wire.Rejected)
	if !ok || d.First != id || d.Settled != settled || d.Role != role || r.Error == nil || r.Error.Condition != condition {
		p.Fatalf("disposition %+v state %+v, want rejected %d with %s", d, d.State, id, condition)
	}
	return r.Error
}

// messages stores n messages in a queue, numbered in their bodies.
func (h *fakeBroker) messages(t testing.TB, queue string, n int) {
	t.Helper()
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, queue)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m, err := message.Parse(encodedMessage(t, []byte{byte(i)}))
		if err != nil {
			t.Fatal(err)
		}
		h.do(sendOne(at, m))
	}
}
