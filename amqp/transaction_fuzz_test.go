package amqp

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
)

// deliveriesOfModel is the number of messages that the client of the model holds.
const deliveriesOfModel = 8

// modelTransaction is the expected effect of a transaction.
type modelTransaction struct {
	id                 []byte
	sends              int
	settles            map[uint32]bool
	rollbackOnly, over bool
}

// txnModel is a client that predicts the answers.
type txnModel struct {
	*peer
	id      uint32 // of the next delivery
	all     []*modelTransaction
	settled map[uint32]bool
	sent    int
}

func (m *txnModel) next() uint32 { m.id++; return m.id - 1 }

// answered reads the answer to work or a command and returns whether it succeeded, and its state.
func (m *txnModel) answered(what string, well bool) any {
	m.Helper()
	for {
		f := m.peer.next().Body
		d, ok := f.(*wire.Disposition)
		if !ok || what == "commit" && d.Role == wire.RoleSender { // a flow that grants credit, or the end of a delivery
			continue
		}
		if _, no := d.State.(*wire.Rejected); no == well {
			m.Fatalf("%s: %+v, want %v", what, d.State, well)
		}
		return d.State
	}
}

// step performs the step that one byte encodes.
func (m *txnModel) step(b byte) {
	op, arg := b&7, int(b>>3)
	if op == 0 {
		m.command(m.next(), &wire.Declare{})
		if d, ok := m.answered("declare", true).(*wire.Declared); ok {
			m.all = append(m.all, &modelTransaction{id: append([]byte{}, d.TxnID...), settles: map[uint32]bool{}})
		}
		return
	}
	if op == 6 {
		id := uint32(arg % deliveriesOfModel)
		m.send(dispose(id, id, false, &wire.Accepted{}))
		m.answered("settle outside", !m.settled[id])
		m.settled[id] = true
		return
	}
	if op == 7 {
		m.send(&wire.Detach{Handle: coordinatorHandle, Closed: true})
		expect[*wire.Detach](m.peer)
		m.coordinator(coordinatorHandle)
		for _, t := range m.all {
			t.over = true
		}
		return
	}
	if len(m.all) > 0 {
		m.work(m.all[arg%len(m.all)], op, uint32(arg%deliveriesOfModel))
	}
}

// work performs an operation in a transaction.
func (m *txnModel) work(t *modelTransaction, op byte, delivery uint32) {
	live := !t.over && !t.rollbackOnly
	switch op {
	case 1:
		m.transfer(0, m.next(), encodedMessage(m, nil), in(t.id))
		m.answered("send", live)
		t.sends++
	case 2:
		m.transfer(0, m.next(), []byte("bad"), in(t.id))
		m.answered("bad send", false)
		t.rollbackOnly = true
	case 3:
		well := live && !m.settled[delivery] && !t.settles[delivery]
		m.settleIn(t.id, delivery, delivery, &wire.Accepted{})
		m.answered("settle", well)
		t.rollbackOnly = t.rollbackOnly || !well
		t.settles[delivery] = true
	case 4:
		for id := range t.settles {
			live = live && !m.settled[id]
		}
		m.command(m.next(), &wire.Discharge{TxnID: t.id})
		m.answered("commit", live)
		if live {
			m.sent += t.sends
			for id := range t.settles {
				m.settled[id] = true
			}
		}
		t.over = true
	case 5:
		m.command(m.next(), &wire.Discharge{TxnID: t.id, Fail: true})
		m.answered("rollback", !t.over)
		t.over = true
	}
}

// Whatever a client does, each transaction is performed completely or not at all, each answer is the one that
// the model predicts, and no memory is counted when all have ended.
func FuzzTransactions(f *testing.F) {
	f.Add([]byte{0, 1, 3, 4})
	f.Add([]byte{0, 1, 2, 4, 0, 9, 12})
	f.Add([]byte{0, 0, 3, 11, 4, 12, 6, 14, 7, 1})
	f.Add([]byte{0, 3, 5, 0, 11, 12, 3})
	f.Add(make([]byte, 18))
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 200 {
			return
		}
		b := newTransactionLog("orders")
		b.messages(t, "orders", deliveriesOfModel)
		s, p := piped(t, b)
		p.login()
		p.coordinator(coordinatorHandle)
		p.sender(0, "orders")
		p.receiver(1, "orders")
		p.credit(1, 0, deliveriesOfModel)
		p.deliveries(deliveriesOfModel)
		m := &txnModel{peer: p, settled: map[uint32]bool{}}
		for _, step := range steps {
			m.step(step)
		}
		m.step(7)
		onlyConn(t, s).nothingHeld(t)
		if got, want := b.counts("orders").Active, uint64(deliveriesOfModel-len(m.settled)+m.sent); got != want {
			t.Errorf("%d messages, want %d", got, want)
		}
	})
}
