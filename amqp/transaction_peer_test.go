package amqp

import (
	"sync"
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// transactionLog is a broker that records the transactions that it receives.
type transactionLog struct {
	*fakeBroker
	mu   sync.Mutex
	code fsm.Code      // answers transactions instead of performing them
	wait chan struct{} // if set, answers wait until it is closed
	all  []fsm.Transaction
}

func newTransactionLog(names ...string) *transactionLog {
	return &transactionLog{fakeBroker: newFakeBroker(names...)}
}

func (l *transactionLog) Transact(tx fsm.Transaction, done func(fsm.Code)) {
	l.mu.Lock()
	l.all = append(l.all, tx)
	code, wait := l.code, l.wait
	l.mu.Unlock()
	answer := func() {
		if code != fsm.OK {
			done(code)
			return
		}
		l.fakeBroker.Transact(tx, done)
	}
	if wait == nil {
		answer()
		return
	}
	go func() { <-wait; answer() }()
}

// asked returns how often the broker received a transaction.
func (l *transactionLog) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// Handles of a peer that uses transactions; its senders and receivers use higher ones.
const coordinatorHandle = 9

// transactionPeer is a peer with a coordinator link.
func transactionPeer(t testing.TB, b Broker, change ...func(*Config)) *peer {
	t.Helper()
	p := loggedIn(t, b, change...)
	p.coordinator(coordinatorHandle)
	return p
}

// receivingPeer is a transactionPeer that has received n new messages of the queue "orders" over the link 1, as the
// deliveries 0 to n-1.
func receivingPeer(t testing.TB, b *transactionLog, n int) *peer {
	t.Helper()
	b.messages(t, "orders", n)
	p := transactionPeer(t, b)
	p.receiver(1, "orders")
	p.credit(1, 0, uint32(n))
	p.deliveries(n)
	return p
}

// coordinator attaches a link to the coordinator and reads its credit.
func (p *peer) coordinator(handle uint32) {
	p.Helper()
	p.send(&wire.Attach{Name: "coordinator", Handle: handle, Role: wire.RoleSender, Source: &wire.Source{}, Coordinator: &wire.Coordinator{}, InitialDeliveryCount: new(uint32)})
	a := expect[*wire.Attach](p)
	if a.Coordinator == nil || len(a.Coordinator.Capabilities) != 3 {
		p.Fatalf("attach %+v", a)
	}
	if f := expect[*wire.Flow](p); f.LinkCredit == nil || *f.LinkCredit == 0 {
		p.Fatalf("flow %+v", f)
	}
}

// disposition reads frames up to the next disposition.
func (p *peer) disposition() *wire.Disposition {
	p.Helper()
	for {
		if d, ok := p.next().Body.(*wire.Disposition); ok {
			return d
		}
	}
}

// command sends a message to the coordinator.
func (p *peer) command(id uint32, command any) {
	p.Helper()
	p.transfer(coordinatorHandle, id, section(nil, wire.SectionValue, command))
}

// declare opens a transaction.
func (p *peer) declare(id uint32) []byte {
	p.Helper()
	p.command(id, &wire.Declare{})
	d := expect[*wire.Disposition](p)
	state, ok := d.State.(*wire.Declared)
	if !ok || len(state.TxnID) != 16 || !d.Settled || d.First != id || *d.Last != id || d.Role != wire.RoleReceiver {
		p.Fatalf("disposition %+v state %+v", d, d.State)
	}
	return append([]byte{}, state.TxnID...)
}

// commit and rollback discharge a transaction successfully.
func (p *peer) commit(id uint32, txn []byte)   { p.Helper(); p.discharge(id, txn, false) }
func (p *peer) rollback(id uint32, txn []byte) { p.Helper(); p.discharge(id, txn, true) }

func (p *peer) discharge(id uint32, txn []byte, fail bool) {
	p.Helper()
	p.command(id, &wire.Discharge{TxnID: txn, Fail: fail})
	p.discharged(id)
}

// discharged reads the answer to a discharge, and before it the settled dispositions of deliveries that the
// transaction has settled; it returns how many deliveries these cover.
func (p *peer) discharged(id uint32) (settled int) {
	p.Helper()
	for {
		d := expect[*wire.Disposition](p)
		if d.Role == wire.RoleSender && d.Settled {
			settled += int(*d.Last-d.First) + 1
			continue
		}
		if _, ok := d.State.(*wire.Accepted); !ok || !d.Settled || d.First != id || *d.Last != id {
			p.Fatalf("disposition %+v state %+v, want accepted %d", d, d.State, id)
		}
		return settled
	}
}

// in makes a transfer part of a transaction.
func in(txn []byte) func(*wire.Transfer) {
	return func(t *wire.Transfer) { t.State = &wire.TransactionalState{TxnID: txn} }
}

// within reads the answer to work in a transaction. It settles a send, and does not settle a delivery.
func (p *peer) within(txn []byte, role wire.Role, first, last uint32, outcome string) {
	p.Helper()
	d := expect[*wire.Disposition](p)
	if inTransaction(d.State, txn) != outcome || d.Settled != (role == wire.RoleReceiver) || d.Role != role || d.First != first || *d.Last != last {
		p.Fatalf("disposition %+v state %+v, want %s", d, d.State, outcome)
	}
}

// inTransaction returns the name of the outcome in a transactional state of a transaction.
func inTransaction(state any, txn []byte) string {
	if s, ok := state.(*wire.TransactionalState); ok && string(s.TxnID) == string(txn) {
		return typeName(s.Outcome)
	}
	return "other"
}

// settleIn sends a disposition that is part of a transaction.
func (p *peer) settleIn(txn []byte, first, last uint32, outcome any) {
	p.Helper()
	p.send(dispose(first, last, false, &wire.TransactionalState{TxnID: txn, Outcome: outcome}))
}
