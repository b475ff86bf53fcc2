package amqp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// comes waits for stats, which are updated a moment after the event.
func comes(t testing.TB, s *Server, what string, holds func(Stats) bool) Stats {
	t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		f := s.Stats()
		if holds(f) {
			return f
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("%s: %+v", what, f)
		}
	}
}

// TestStatsCountEveryKindOfEvent checks every kind of stat with one connection that causes some events of
// each.
func TestStatsCountEveryKindOfEvent(t *testing.T) {
	t.Parallel()
	h := newTransactionLog("orders")
	s, p := piped(t, h)
	p.login()
	p.coordinator(coordinatorHandle)
	p.sender(0, "orders")
	yes := true
	settled := func(t *wire.Transfer) { t.Settled = &yes }
	for id := range uint32(4) {
		p.transfer(0, id, encodedMessage(t, []byte{1}))
		p.accepted()
	}
	p.transfer(0, 4, encodedMessage(t, []byte{1}), settled)
	p.transfer(0, 5, []byte{0xff}, settled) // nobody is notified
	p.transfer(0, 6, []byte{0xff})
	p.refused(6, wire.RoleReceiver, wire.ConditionDecodeError)
	txn := p.declare(7)
	p.transfer(0, 8, encodedMessage(t, []byte{1}), in(txn))
	expect[*wire.Disposition](p)

	p.receiver(1, "orders")
	p.credit(1, 0, 5)
	for range 5 {
		expect[*wire.Transfer](p)
	}
	p.send(dispose(0, 1, false, &wire.Accepted{}), dispose(2, 2, false, &wire.Modified{}), dispose(3, 3, false, &wire.Rejected{}))
	for range 3 {
		expect[*wire.Disposition](p)
	}
	p.send(dispose(4, 4, false, &wire.TransactionalState{TxnID: txn, Outcome: &wire.Accepted{}}))
	expect[*wire.Disposition](p)
	before := s.Stats()
	if before.Settled[fsm.Complete] > 2 {
		t.Errorf("%d completed before the commit", before.Settled[fsm.Complete])
	}
	p.commit(9, txn)

	f := comes(t, s, "all is told", func(f Stats) bool { return f.Settled[fsm.Complete] == 3 && f.Received == 6 && f.Delivered >= 5 })
	if f.BytesIn == 0 || f.BytesOut == 0 || f.Delivered > 6 { // the abandoned one may have been delivered again
		t.Errorf("%d bytes in, %d out, %d delivered", f.BytesIn, f.BytesOut, f.Delivered)
	}
	if m := f.Memory; m.Limit != memoryBytesDefault || m.Accounts != 1 || m.Used < budget.ConnectionBytes {
		t.Errorf("memory %+v", m)
	}
	f.BytesIn, f.BytesOut, f.Delivered, f.Memory = 0, 0, 0, budget.Stats{}
	want := Stats{
		Connections: 1, Sessions: 1, Links: 3, Accepted: 1, Received: 6, Presettled: 1,
		Refused: map[wire.Symbol]uint64{wire.ConditionDecodeError: 1},
	}
	want.Settled[fsm.Complete], want.Settled[fsm.Abandon], want.Settled[fsm.DeadLetter] = 3, 1, 1
	if d := cmp.Diff(want, f); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	consumed := s.Consumers()
	for _, e := range consumed {
		if len(consumed) != 1 || e.Name != "orders" || e.Kind != fsm.QueueEntity || e.Links != 1 {
			t.Errorf("consumed entities are %+v, want one link to orders", consumed)
		}
	}

	_ = p.net.Close()
	<-p.ended
	gone := s.Stats()
	if gone.Connections != 0 || gone.Sessions != 0 || gone.Links != 0 {
		t.Errorf("afterwards %d connections, %d sessions, %d links", gone.Connections, gone.Sessions, gone.Links)
	}
	if after := s.Consumers(); len(consumed) != 1 || len(after) != 0 {
		t.Errorf("consumed entities were %+v and are %+v, want one and none", consumed, after)
	}
	if gone.Received != 6 || gone.Accepted != 1 || gone.Settled != want.Settled {
		t.Errorf("afterwards %+v", gone)
	}
}

// Settlements by token count like others; requests and refused connections are counted.
func TestStatsOfRequestsAndLogins(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	server, address := gateway(t, h)
	p := sdkPair{T: t, ctx: within(t, 20*time.Second), broker: h, address: address, client: sdk(t, address)}
	var err error
	p.sender, err = p.client.NewSender("orders", nil)
	p.must(err)
	p.send("a")
	m := p.receive(p.another(p.client), 1)[0]
	p.must(p.another(sdk(t, address)).CompleteMessage(p.ctx, byToken(m), nil))
	comes(t, server, "settled by a request", func(f Stats) bool {
		return f.Settled[fsm.Complete] == 1 && f.Requests >= 3 && f.Received == 1 && f.Delivered == 1 && f.Links > 0
	})

	s, q := piped(t, newFakeBroker("orders"), func(c *Config) { c.ConnectionsMax = 1 })
	b := wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLInit{Mechanism: login.MechanismPlain, InitialResponse: []byte("\x00who\x00what")})
	go func() { _, _ = q.net.Write(b) }()
	q.header(headerSASL)
	expect[*wire.SASLMechanisms](q)
	if o := expect[*wire.SASLOutcome](q); o.Code == login.CodeOK {
		t.Fatal("let in")
	}
	comes(t, s, "a login was refused", func(f Stats) bool { return f.Logins == 1 })

	full, r := piped(t, newFakeBroker("orders"), func(c *Config) { c.ConnectionsMax = 1 })
	r.login()
	<-connect(t, full).ended
	if f := full.Stats(); f.Rejected != 1 || f.Accepted != 1 {
		t.Errorf("%d were one too many, %d taken", f.Rejected, f.Accepted)
	}
}
