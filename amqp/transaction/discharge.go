package transaction

import (
	"context"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Discharge ends a transaction: it rolls the transaction back if fail is set, otherwise it commits, both when all
// operations are answered. done gets the reason why it did not do so, once, at once or from another goroutine. The
// mutex is not held during Discharge and done.
func (all *Set) Discharge(ctx context.Context, id *ID, fail bool, done func(refusal.Cause)) {
	all.conn.Lock()
	defer all.conn.Unlock()
	t, cause := all.Find(id)
	switch {
	case cause.Condition != "":
		all.conn.Later(func() { done(cause) })
	case t.pending.any():
		// An operation that is refused meanwhile makes the commit fail. Nothing can be added.
		all.beginCommit(t)
		t.pending.resume = func() { t.end(ctx, fail, done) }
	default:
		t.end(ctx, fail, done)
	}
}

// end rolls the transaction back or commits it. The mutex is held.
func (t *Transaction) end(ctx context.Context, fail bool, done func(refusal.Cause)) {
	var cause refusal.Cause
	switch {
	case fail:
	case t.rollbackReason.Condition != "":
		cause = t.rollbackOnly()
	case t.sends+t.settlements > 0:
		t.commit(ctx, done)
		return
	}
	t.set.rollback(t)
	t.set.conn.Later(func() { done(cause) })
}

// commit performs the whole transaction, and then calls done. The mutex is held.
func (t *Transaction) commit(ctx context.Context, done func(refusal.Cause)) {
	t.set.beginCommit(t)
	work := t.work
	t.work = fsm.Transaction{}
	t.set.conn.Later(func() {
		t.set.broker.Transact(work, func(code fsm.Code) {
			defer t.set.conn.Recovered(ctx)
			t.committed(code, &work)
			done(commitRefusal(code))
		})
	})
}

// committed records the outcome of a commit. The mutex is not held.
func (t *Transaction) committed(code fsm.Code, work *fsm.Transaction) {
	c := t.set.conn
	c.Lock()
	defer c.Unlock()
	t.set.endCommit(t)
	if code != fsm.OK {
		if t.deliveries != nil {
			t.deliveries.RolledBack()
		}
		return
	}
	c.Committed(work)
	if t.deliveries != nil {
		t.deliveries.Committed()
	}
}

// commitRefusal returns the reason why a transaction was not committed. Its condition is empty for OK.
func commitRefusal(code fsm.Code) refusal.Cause {
	v := refusal.SettleReplyOf(code)
	switch code { //nolint:exhaustive // what the others say is true of a transaction too
	case fsm.OK:
		return refusal.Cause{}
	case fsm.Timeout:
		return refusal.Later(wire.ConditionTransactionTimeout, "It is not known whether the transaction was committed: all of it was done, or nothing. Find out which before you do the work again.")
	case fsm.NotAllowed:
		v.Text = "it does what one of its entities does not allow. Send to queues and topics, and settle the messages of one entity."
	case fsm.InvalidArgument:
		v.Text += " Or more is sent or settled than fits into one transaction; then do less in one."
	}
	return refusal.Cause{Condition: wire.ConditionTransactionRollback, Text: "The transaction was rolled back, and nothing of it was done: " + v.Text, Retry: v.Retry}
}
