package amqp

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Of more transactions than a connection may have open, a declare waits for another one to end, and is refused after five
// seconds. The credit of the coordinator link suffices for the discharges meanwhile.
func TestDeclareWaitsForAnotherTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := transactionPeer(t, newTransactionLog("orders"))
		var txns [][]byte
		id := uint32(0)
		for range transaction.OpenMax {
			p.command(id, &wire.Declare{})
			d, ok := p.disposition().State.(*wire.Declared)
			if !ok {
				t.Fatalf("declare %d is refused", id)
			}
			txns = append(txns, append([]byte{}, d.TxnID...))
			id++
		}
		const waiting = 2*requestCreditMax + 1
		for range waiting {
			p.command(id, &wire.Declare{})
			id++
		}
		for i := range waiting - 1 {
			p.command(id, &wire.Discharge{TxnID: txns[i], Fail: true})
			var declared, discharged bool
			for !declared || !discharged {
				d := p.disposition()
				if _, ok := d.State.(*wire.Declared); ok {
					declared = d.First == transaction.OpenMax+uint32(i)
				} else {
					discharged = d.First == id
				}
			}
			id++
		}
		began := time.Now()
		d := p.disposition()
		r, ok := d.State.(*wire.Rejected)
		if !ok || d.First != transaction.OpenMax+waiting-1 || r.Error.Condition != wire.ConditionResourceLimitExceeded || !strings.Contains(r.Error.Description, "Use another client, or fewer concurrent calls.") {
			t.Errorf("disposition %+v, state %+v", d, d.State)
		}
		if took := time.Since(began); took != transaction.DeclareWithin {
			t.Errorf("refused after %v, want %v", took, transaction.DeclareWithin)
		}
	})
}

// A transaction that is being committed counts among those that a connection may have.
func TestOpenTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTransactionLog("orders")
		b.wait = make(chan struct{})
		p := transactionPeer(t, b)
		p.sender(0, "orders")
		id := uint32(0)
		var txn []byte
		for range transaction.OpenMax {
			p.command(id, &wire.Declare{})
			d, _ := p.disposition().State.(*wire.Declared)
			txn = append([]byte{}, d.TxnID...)
			id++
		}
		p.transfer(0, id, encodedMessage(t, nil), in(txn))
		p.within(txn, wire.RoleReceiver, id, id, "accepted")
		p.command(id+1, &wire.Discharge{TxnID: txn}) // the broker does not answer, so the transaction still counts
		p.command(id+2, &wire.Declare{})
		if r, ok := p.disposition().State.(*wire.Rejected); !ok || r.Error.Condition != wire.ConditionResourceLimitExceeded {
			t.Errorf("declare: %+v, want rejected", r)
		}
		close(b.wait)
		p.accepted()
		p.declare(id + 3)
	})
}

// A transaction has limits of its own for sends and for settlements: a hundred sends and one settlement fit.
func TestTransactionOperationsMax(t *testing.T) {
	t.Parallel()
	const many = transaction.SettlementsMax + 1
	b := newTransactionLog("orders")
	p := receivingPeer(t, b, many)
	p.sender(0, "orders")
	data := wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), encodedMessage(t, nil))
	batch := func(t *wire.Transfer) { t.MessageFormat = ptr(uint32(batchFormat)) }
	txn := p.declare(0)
	p.transfer(0, 1, bytes.Repeat(data, transaction.SendsMax), in(txn), batch)
	p.within(txn, wire.RoleReceiver, 1, 1, "accepted")
	p.settleIn(txn, 0, transaction.SettlementsMax-1, &wire.Accepted{})
	p.within(txn, wire.RoleSender, 0, transaction.SettlementsMax-1, "accepted")
	p.transfer(0, 2, encodedMessage(t, nil), in(txn))
	p.refused(2, wire.RoleReceiver, wire.ConditionResourceLimitExceeded)
	p.command(3, &wire.Discharge{TxnID: txn})
	if e := p.refused(3, wire.RoleReceiver, wire.ConditionTransactionRollback); !strings.Contains(e.Description, "more than 100 messages") {
		t.Error(e.Description)
	}
	txn = p.declare(4)
	p.settleIn(txn, 0, 1<<31, &wire.Accepted{}) // all deliveries, which is one too many
	if d := expect[*wire.Disposition](p); typeName(d.State) != "rejected" {
		t.Errorf("%+v", d.State)
	}
}

// One transaction, and all transactions of a connection together, have a limit in bytes.
func TestTransactionBytesMax(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.change("orders", func(s *fsm.EntitySettings) { s.MaxMessageBytes = 8 << 20 })
	s, p := piped(t, b)
	p.login()
	p.coordinator(coordinatorHandle)
	p.sender(0, "orders")
	const size = 4<<20 - 1024
	id := uint32(0)
	var full []byte
	for range transaction.TotalBytesMax / transaction.BytesMax {
		full = p.declare(id)
		for i := range uint32(4) {
			p.sendLarge(0, id+i+1, size, in(full))
			p.within(full, wire.RoleReceiver, id+i+1, id+i+1, "accepted")
		}
		id += 5
	}
	txn := p.declare(id)
	p.sendLarge(0, id+1, 1<<20, in(txn))
	if e := p.refused(id+1, wire.RoleReceiver, wire.ConditionResourceLimitExceeded); !strings.Contains(e.Description, "of the connection") {
		t.Error(e.Description)
	}
	p.sendLarge(0, id+2, 1<<20, in(full))
	if e := p.refused(id+2, wire.RoleReceiver, wire.ConditionResourceLimitExceeded); !strings.Contains(e.Description, "The transaction would hold") {
		t.Error(e.Description)
	}
	p.rollback(id+3, full)
	c := onlyConn(t, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transactions.Bytes() > transaction.BytesMax || c.transactions.Bytes() < 4*size || c.inFlightBytes != 0 {
		t.Errorf("%d bytes held, %d in flight", c.transactions.Bytes(), c.inFlightBytes)
	}
}
