package amqp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// numberedPeer is a managementPeer of a cluster that knows reserved numbers, with a coordinator link.
func numberedPeer(t *testing.T, b *transactionLog) *peer {
	t.Helper()
	p := loggedIn(t, b)
	p.requestLinks(0, "orders/$management")
	p.coordinator(coordinatorHandle)
	return p
}

// scheduleIn schedules n messages in a transaction and returns their numbers.
func (p *peer) scheduleIn(txn []byte, id uint32, n int) []int64 {
	p.Helper()
	messages := make([][]byte, n)
	for i := range messages {
		messages[i] = scheduled(time.Now().Add(time.Hour))
	}
	status, condition, body := p.manageIn(txn, id, management.ScheduleOperation, entries(messages...))
	numbers, _ := body.Get("sequence-numbers").(wire.Array)
	list, _ := numbers.Values.([]int64)
	if status != int32(200) || len(list) != n {
		p.Fatalf("%v %v %+v", status, condition, body)
	}
	return list
}

func cancels(numbers ...int64) wire.Map {
	return wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: numbers}}}
}

// scheduledAt returns the numbers of the scheduled messages of a queue.
func (h *fakeBroker) scheduledAt(t *testing.T, queue string) (numbers []int64) {
	t.Helper()
	at, _ := h.Resolve(t.Context(), fsm.DefaultNamespace, queue)
	found, _ := h.Peek(t.Context(), at, 0, 100, 1<<20)
	for _, d := range found {
		if d.State == fsm.Scheduled {
			numbers = append(numbers, int64(d.Lock.Sequence))
		}
	}
	return numbers
}

// schedule-message in a transaction answers with the numbers that the messages have after the commit. A rollback leaves a
// gap in the numbers, and nothing else.
func TestScheduleInATransactionAnswersRealNumbers(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := numberedPeer(t, b)
	txn := p.declare(0)
	if got := p.scheduleIn(txn, 1, 2); !cmp.Equal(got, []int64{1, 2}) || b.counts("orders").Scheduled != 0 {
		t.Errorf("numbers %v, counts %+v", got, b.counts("orders"))
	}
	p.rollback(2, txn)
	txn = p.declare(3)
	got := append(p.scheduleIn(txn, 4, 2), p.scheduleIn(txn, 5, 1)...)
	p.commit(6, txn)
	if want := []int64{3, 4, 5}; !cmp.Equal(got, want) || !cmp.Equal(b.scheduledAt(t, "orders"), want) {
		t.Errorf("answered %v, stored %v", got, b.scheduledAt(t, "orders"))
	}
	if status, _, _ := p.manage(7, management.CancelOperation, cancels(4)); status != int32(200) {
		t.Errorf("cancel: %v", status)
	}
}

// cancel-scheduled-message takes part in a transaction: also of what the same transaction schedules.
func TestCancelTakesPartInATransaction(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := numberedPeer(t, b)
	setup := p.declare(0)
	p.scheduleIn(setup, 1, 3)
	p.commit(2, setup)
	for i, c := range []struct {
		discharge func(id uint32, txn []byte)
		want      []int64
	}{{p.rollback, []int64{1, 2, 3}}, {p.commit, []int64{2, 7}}} {
		id := uint32(10 * (i + 1))
		txn := p.declare(id)
		own := p.scheduleIn(txn, id+1, 2)
		if status, condition, _ := p.manageIn(txn, id+2, management.CancelOperation, cancels(1, own[0], 3)); status != int32(200) {
			t.Fatalf("%v %v", status, condition)
		}
		if got := b.scheduledAt(t, "orders"); !cmp.Equal(got, []int64{1, 2, 3}) {
			t.Errorf("before the discharge: %v", got)
		}
		c.discharge(id+3, txn)
		if got := b.scheduledAt(t, "orders"); !cmp.Equal(got, c.want) {
			t.Errorf("after the discharge: %v, want %v", got, c.want)
		}
	}
	txn := p.declare(40)
	p.manageIn(txn, 41, management.CancelOperation, cancels(2, 99))
	p.command(42, &wire.Discharge{TxnID: txn})
	p.refused(42, wire.RoleReceiver, wire.ConditionTransactionRollback)
	if got := b.scheduledAt(t, "orders"); !cmp.Equal(got, []int64{2, 7}) {
		t.Errorf("after a refused commit: %v", got)
	}
}

// A discharge waits for numbers that are being reserved.
func TestDischargeWaitsForReservedNumbers(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	p := numberedPeer(t, b)
	hold := make(chan struct{})
	b.fakeBroker.mu.Lock()
	b.checkHold = hold
	b.fakeBroker.mu.Unlock()
	txn := p.declare(0)
	request := requestMessage(wire.Properties{MessageID: uint64(1)}, wire.Map{{Key: "operation", Value: management.ScheduleOperation}}, entries(scheduled(time.Now().Add(time.Hour))))
	p.transfer(0, 1, request, settled, in(txn))
	p.command(2, &wire.Discharge{TxnID: txn})
	p.command(3, &wire.Discharge{TxnID: txn})
	p.refused(3, wire.RoleReceiver, wire.ConditionTransactionUnknownID)
	close(hold)
	if r := p.response(); r.properties.Get("statusCode") != int32(200) {
		t.Errorf("%+v", r)
	}
	p.discharged(2)
	if got := b.scheduledAt(t, "orders"); !cmp.Equal(got, []int64{1}) {
		t.Errorf("stored %v", got)
	}
}

// set-session-state takes part in a transaction, and is refused when it comes if the session is lost.
func TestSessionStateTakesPartInATransaction(t *testing.T) {
	t.Parallel()
	b := &transactionLog{fakeBroker: newShortSessions(t, 1)}
	p := numberedPeer(t, b)
	p.acceptRed(2)
	of := func(pairs ...wire.Pair) wire.Map {
		return append(wire.Map{{Key: "session-id", Value: "red"}}, pairs...)
	}
	state := func(id uint32) any {
		_, _, body := p.manage(id, management.GetStateOperation, of())
		return body.Get("session-state")
	}
	for i, c := range []struct {
		discharge func(id uint32, txn []byte)
		want      any
	}{{p.rollback, nil}, {p.commit, []byte("second")}} {
		id := uint32(10 * (i + 1))
		txn := p.declare(id)
		for j, text := range []string{"first", "second"} {
			if status, condition, _ := p.manageIn(txn, id+uint32(j)+1, management.SetStateOperation, of(wire.Pair{Key: "session-state", Value: []byte(text)})); status != int32(200) {
				t.Fatalf("%v %v", status, condition)
			}
		}
		if got := state(id + 3); got != nil {
			t.Errorf("before the discharge: %v", got)
		}
		c.discharge(id+4, txn)
		if got := state(id + 5); !cmp.Equal(got, c.want) {
			t.Errorf("after the discharge: %v, want %v", got, c.want)
		}
	}
}
