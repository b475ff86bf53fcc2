package amqp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// transactionEnds are the ways in which the transaction of a test ends, about a second after its declare. committed says
// that its delivery is settled then, lost that the client gets no answers.
var transactionEnds = map[string]struct {
	end             func(p *peer, txn []byte)
	committed, lost bool
}{
	"commit":               {end: func(p *peer, txn []byte) { p.command(1, &wire.Discharge{TxnID: txn}) }, committed: true},
	"rollback":             {end: func(p *peer, txn []byte) { p.command(1, &wire.Discharge{TxnID: txn, Fail: true}) }},
	"timeout":              {end: func(p *peer, _ []byte) { p.idle(transaction.Within - 2*time.Second) }},
	"coordinator detached": {end: func(p *peer, _ []byte) { p.send(&wire.Detach{Handle: coordinatorHandle, Closed: true}) }},
	"connection killed":    {end: func(p *peer, _ []byte) { _ = p.net.Close(); <-p.ended }, lost: true},
}

// readAll reads what comes within two seconds.
func (p *peer) readAll() {
	p.Helper()
	_ = p.net.SetReadDeadline(time.Now().Add(2 * time.Second))
	for {
		if _, err := p.reader.ReadFrame(); err != nil {
			return
		}
	}
}

// A client that releases a delivery which its open transaction settles, as Java's asynchronous receiver does when it is
// cancelled, ends neither the lock nor the transaction. The release is done and answered when the transaction is rolled
// back.
func TestOutcomeBesideATransactionIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range transactionEnds {
		for how, detaches := range map[string]bool{"link attached": false, "link detached": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					settings := fsm.EntitySettings{LockDuration: fsm.Millis((5 * time.Minute).Milliseconds()), MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10}
					b := &transactionLog{fakeBroker: newFakeBrokerOf(settings, "orders")}
					p := receivingPeer(t, b, 2)
					txn := p.declare(0)
					p.settleIn(txn, 0, 0, &wire.Accepted{})
					p.within(txn, wire.RoleSender, 0, 0, "accepted")
					p.send(dispose(0, 0, false, &wire.Released{}))
					if detaches {
						p.send(&wire.Detach{Handle: 1, Closed: true})
						expect[*wire.Detach](p)
					}
					p.idle(time.Second)
					if got := b.counts("orders"); got.Active != 2 || got.Locked != 2 {
						t.Errorf("before the end: %+v", got)
					}
					c.end(p, txn)
					if !detaches && !c.lost {
						d := p.disposition()
						well := typeName(d.State) == "released"
						if c.committed {
							well = inTransaction(d.State, txn) == "accepted"
						}
						if d.Role != wire.RoleSender || d.First != 0 || *d.Last != 0 || !d.Settled || !well {
							t.Errorf("answer %+v, state %+v", d, d.State)
						}
					}
					if !c.lost {
						p.readAll()
					}
					if got := b.counts("orders"); c.committed && got.Active != 1 || !c.committed && got.Active != 2 || got.Locked != 1 {
						t.Errorf("after the end: %+v", got)
					}
				})
			})
		}
	}
}

// A delivery that two transactions settle is released when both are rolled back, and not released when one is committed.
func TestOutcomeBesideTwoTransactionsIsKept(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"one commits": true, "both are rolled back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTransactionLog("orders")
			p := receivingPeer(t, b, 1)
			first, second := p.declare(0), p.declare(1)
			for _, txn := range [][]byte{first, second} {
				p.settleIn(txn, 0, 0, &wire.Accepted{})
				p.within(txn, wire.RoleSender, 0, 0, "accepted")
			}
			p.send(dispose(0, 0, false, &wire.Released{}))
			p.rollback(2, second)
			if got := b.counts("orders"); got.Locked != 1 {
				t.Errorf("after the first rollback: %+v", got)
			}
			p.command(3, &wire.Discharge{TxnID: first, Fail: !commits})
			if n := p.discharged(3); n != 1 {
				t.Errorf("%d answers for the delivery", n)
			}
			if got := b.counts("orders"); got.Locked != 0 || (got.Active == 0) != commits {
				t.Errorf("after both: %+v", got)
			}
		})
	}
}

// A session whose link is detached while a transaction settles its message stays locked until the transaction ends, and
// the detach is answered at once.
func TestTransactionKeepsTheSessionOfADetachedLink(t *testing.T) {
	t.Parallel()
	for name, c := range transactionEnds {
		for how, releases := range map[string]bool{"released before": true, "not released": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := &transactionLog{fakeBroker: newSessions(t, 5*time.Minute, 1)}
					s, p := piped(t, b)
					p.login()
					p.coordinator(coordinatorHandle)
					p.acceptRed(1)
					p.credit(1, 0, 5)
					p.deliveries(1)
					txn := p.declare(0)
					p.settleIn(txn, 0, 0, &wire.Accepted{})
					p.within(txn, wire.RoleSender, 0, 0, "accepted")
					if releases {
						p.send(dispose(0, 0, false, &wire.Released{}))
					}
					p.send(&wire.Detach{Handle: 1, Closed: true})
					expect[*wire.Detach](p)
					other := connect(t, s).login()
					other.send(&wire.Attach{Name: "other", Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders", Filter: wire.Map{{Key: sessionFilterKey, Value: "red"}}}, Target: &wire.Target{}})
					if cause := other.refusedLink(); cause.Condition != wire.ConditionSessionCannotBeLocked {
						t.Errorf("accepted elsewhere before the end: %+v", cause)
					}
					_ = other.net.Close()
					p.idle(time.Second)
					c.end(p, txn)
					if !c.lost {
						p.readAll()
					}
					if got, want := b.counts("orders").Active, uint64(1); c.committed && got != 0 || !c.committed && got != want {
						t.Errorf("%d messages after the end", got)
					}
					connect(t, s).login().acceptRed(0)
				})
			})
		}
	}
}

// A commit that the broker does not answer keeps the session of a detached link for two minutes.
func TestKeptSessionIsReleasedAfterTwoMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &transactionLog{fakeBroker: newSessions(t, 5*time.Minute, 1), wait: make(chan struct{})}
		p := loggedIn(t, b)
		p.coordinator(coordinatorHandle)
		p.acceptRed(1)
		p.credit(1, 0, 1)
		p.deliveries(1)
		txn := p.declare(0)
		p.settleIn(txn, 0, 0, &wire.Accepted{})
		p.within(txn, wire.RoleSender, 0, 0, "accepted")
		p.command(1, &wire.Discharge{TxnID: txn})
		p.send(&wire.Detach{Handle: 1, Closed: true})
		expect[*wire.Detach](p)
		p.idle(transaction.Within - time.Second)
		if got := b.counts("orders"); got.Locked != 1 {
			t.Errorf("before: %+v", got)
		}
		p.idle(2 * time.Second)
		if got := b.counts("orders"); got.Locked != 0 {
			t.Errorf("after: %+v", got)
		}
		p.acceptRed(2)
		close(b.wait)
	})
}
