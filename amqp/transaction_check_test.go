package amqp

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// completeBehind completes a locked message of "orders" behind the back of the client that has it.
func (h *fakeBroker) completeBehind(t *testing.T, n fsm.SequenceNumber) {
	t.Helper()
	at, _ := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	found, _ := h.Peek(t.Context(), at, n, 1, 1<<20)
	r := h.do(fsm.SettleMessages{Address: at.Address(), Settlements: fsm.SettleAll(found, fsm.Complete)})
	if len(r.Codes) != 1 || r.Codes[0] != fsm.OK {
		t.Fatalf("complete message %d: %+v", n, r)
	}
}

// A settlement in a transaction whose lock has ended is refused when it comes, and settled. What came with it stays open.
func TestLostLockIsRefusedInItsTransaction(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := receivingPeer(t, b, 3)
	b.completeBehind(t, 2)
	txn := p.declare(0)
	p.settleIn(txn, 0, 2, &wire.Accepted{})
	p.rejected(0, wire.RoleSender, wire.ConditionMessageLockLost, false)
	p.rejected(1, wire.RoleSender, wire.ConditionMessageLockLost, true)
	p.rejected(2, wire.RoleSender, wire.ConditionMessageLockLost, false)
	p.command(1, &wire.Discharge{TxnID: txn})
	p.refused(1, wire.RoleReceiver, wire.ConditionTransactionRollback)
	if b.asked() != 0 {
		t.Error("the broker got the transaction")
	}
	p.send(dispose(2, 2, false, &wire.Accepted{}))
	if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" || !d.Settled {
		t.Errorf("after the rollback: %+v", d)
	}
	if got := b.counts("orders"); got.Active != 1 {
		t.Errorf("counts %+v", got)
	}
}

// The same for a settlement by its token over the management node.
func TestLostTokenIsRefusedInItsTransaction(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.messages(t, "orders", 1)
	token := b.locked(t, "orders")
	b.completeBehind(t, 1)
	p := managementPeer(t, b, fsm.Manage)
	p.coordinator(coordinatorHandle)
	txn := p.declare(0)
	status, condition, _ := p.manageIn(txn, 1, management.DispositionOperation, settlesBy("completed", token))
	if status != int32(410) || condition != wire.ConditionMessageLockLost {
		t.Errorf("%v %v", status, condition)
	}
	p.command(2, &wire.Discharge{TxnID: txn})
	p.refused(2, wire.RoleReceiver, wire.ConditionTransactionRollback)
}

// A message that a transaction sends to an entity that was deleted is refused when it comes.
func TestSendToAMissingEntityIsRefusedInItsTransaction(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := transactionPeer(t, b)
	p.sender(0, "orders")
	txn := p.declare(0)
	b.remove("orders")
	p.transfer(0, 1, encodedMessage(t, nil), in(txn))
	p.refused(1, wire.RoleReceiver, wire.ConditionNotFound)
	if d := expect[*wire.Detach](p); d.Error == nil {
		t.Errorf("detach %+v", d)
	}
	p.command(2, &wire.Discharge{TxnID: txn})
	p.refused(2, wire.RoleReceiver, wire.ConditionTransactionRollback)
}

// Settlements that come while the broker is asked share one question, and a commit waits for their answers.
func TestSettlementsOfATransactionShareQuestions(t *testing.T) {
	t.Parallel()
	const messages = 50
	for name, lost := range map[string]bool{"held": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTransactionLog("orders")
			p := receivingPeer(t, b, messages)
			if lost {
				b.completeBehind(t, messages)
			}
			hold := make(chan struct{})
			b.mu.Lock()
			b.checkHold = hold
			b.mu.Unlock()
			txn := p.declare(0)
			for id := range uint32(messages) {
				p.settleIn(txn, id, id, &wire.Accepted{})
			}
			p.command(1, &wire.Discharge{TxnID: txn})
			p.command(2, &wire.Declare{}) // the answer shows that the commit has come
			if d := expect[*wire.Disposition](p); d.First != 2 {
				t.Fatalf("disposition %+v", d)
			}
			close(hold)
			answered := 0
			for answered < messages {
				d := expect[*wire.Disposition](p)
				if _, refused := d.State.(*wire.Rejected); d.Role != wire.RoleSender || d.Settled && !lost || refused && !lost {
					t.Fatalf("disposition %+v state %+v", d, d.State)
				}
				answered += int(*d.Last-d.First) + 1
			}
			if n := b.checked(); n > 2 {
				t.Errorf("%d questions", n)
			}
			if lost {
				p.refused(1, wire.RoleReceiver, wire.ConditionTransactionRollback)
				return
			}
			if n := p.discharged(1); n != messages || b.counts("orders").Active != 0 {
				t.Errorf("%d are settled, counts %+v", n, b.counts("orders"))
			}
		})
	}
}

// A transaction that takes too long while the broker is asked is rolled back; the answers change nothing.
func TestTransactionEndsWhileItIsChecked(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := receivingPeer(t, b, 1)
	hold := make(chan struct{})
	b.fakeBroker.mu.Lock()
	b.checkHold = hold
	b.fakeBroker.mu.Unlock()
	txn := p.declare(0)
	p.settleIn(txn, 0, 0, &wire.Accepted{})
	p.command(1, &wire.Discharge{TxnID: txn, Fail: true})
	p.command(2, &wire.Discharge{TxnID: txn})
	p.refused(2, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	close(hold)
	p.within(txn, wire.RoleSender, 0, 0, "accepted")
	p.discharged(1)
	if b.asked() != 0 || b.counts("orders").Active != 1 {
		t.Errorf("%d transactions, counts %+v", b.asked(), b.counts("orders"))
	}
}
