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
	kept    map[uint32]bool // settled outside of the open transactions that settle them
	applied map[uint32]bool // settled at the rollback of those, and not answered yet
	sent    int
}

func (m *txnModel) next() uint32 { m.id++; return m.id - 1 }

// answered reads the answer to work or a command and those to kept settlements, and returns the state of the former.
func (m *txnModel) answered(what string, well bool) (state any) {
	m.Helper()
	for state == nil || len(m.applied) > 0 {
		f := m.peer.next().Body
		d, ok := f.(*wire.Disposition)
		if !ok || m.answersKept(d) || what == "commit" && d.Role == wire.RoleSender { // a flow that grants credit, or the end of a delivery
			continue
		}
		if _, no := d.State.(*wire.Rejected); no == well || state != nil {
			m.Fatalf("%s: %+v, want %v", what, d.State, well)
		}
		state = d.State
	}
	return state
}

// answersKept reports whether a disposition answers settlements that were kept.
func (m *txnModel) answersKept(d *wire.Disposition) bool {
	if typeName(d.State) != "accepted" || d.Role != wire.RoleSender || !d.Settled || !m.applied[d.First] {
		return false
	}
	for id := d.First; id <= *d.Last; id++ {
		if !m.applied[id] {
			m.Fatalf("settlement %d of %+v was not kept", id, d)
		}
		delete(m.applied, id)
	}
	return true
}

// enlists reports whether a transaction that may be committed settles a delivery.
func (m *txnModel) enlists(id uint32) bool {
	for _, t := range m.all {
		if !t.over && !t.rollbackOnly && t.settles[id] {
			return true
		}
	}
	return false
}

// rolledBack applies the settlements that were kept for a transaction which has dropped its own.
func (m *txnModel) rolledBack(t *modelTransaction) {
	for id := range t.settles {
		if m.kept[id] && !m.enlists(id) {
			delete(m.kept, id)
			m.settled[id], m.applied[id] = true, true
		}
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
		if !m.settled[id] && m.enlists(id) {
			m.kept[id] = true
			return
		}
		m.answered("settle outside", !m.settled[id])
		m.settled[id] = true
		return
	}
	if op == 7 {
		for _, t := range m.all {
			t.over = true
			m.rolledBack(t)
		}
		m.send(&wire.Detach{Handle: coordinatorHandle, Closed: true})
		for detached := false; !detached || len(m.applied) > 0; {
			switch f := m.peer.next().Body.(type) {
			case *wire.Detach:
				detached = true
			case *wire.Disposition:
				if !m.answersKept(f) {
					m.Fatalf("disposition %+v", f)
				}
			}
		}
		m.coordinator(coordinatorHandle)
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
		t.rollbackOnly = true
		m.rolledBack(t)
		m.answered("bad send", false)
	case 3:
		well := live && !m.settled[delivery] && !t.settles[delivery]
		m.settleIn(t.id, delivery, delivery, &wire.Accepted{})
		if !well {
			t.rollbackOnly = true
			m.rolledBack(t)
		}
		m.answered("settle", well)
		t.settles[delivery] = true
	case 4:
		for id := range t.settles {
			live = live && !m.settled[id]
		}
		t.over = true
		if live {
			m.sent += t.sends
			for id := range t.settles {
				m.settled[id] = true
				delete(m.kept, id)
			}
		}
		m.rolledBack(t)
		m.command(m.next(), &wire.Discharge{TxnID: t.id})
		m.answered("commit", live)
	case 5:
		well := !t.over
		t.over = true
		m.rolledBack(t)
		m.command(m.next(), &wire.Discharge{TxnID: t.id, Fail: true})
		m.answered("rollback", well)
	}
}

// Whatever a client does, each transaction is performed completely or not at all, each answer is the one that
// the model predicts, and no memory is counted when all have ended.
func FuzzTransactions(f *testing.F) {
	f.Add([]byte{0, 1, 3, 4})
	f.Add([]byte{0, 1, 2, 4, 0, 9, 12})
	f.Add([]byte{0, 0, 3, 11, 4, 12, 6, 14, 7, 1})
	f.Add([]byte{0, 3, 5, 0, 11, 12, 3})
	f.Add([]byte{0, 0, 3, 11, 6, 5, 13, 14}) // settled in two transactions and outside
	f.Add([]byte{0, 3, 6, 2, 0, 11, 3, 14, 6, 7})
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
		m := &txnModel{peer: p, settled: map[uint32]bool{}, kept: map[uint32]bool{}, applied: map[uint32]bool{}}
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
