package transaction

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/fsm"
)

// An operation of a transaction is enlisted at once, and answered when the broker has said whether it can succeed: a
// lock that has ended, and an entity that does not exist, are refused when the operation comes, not at the commit.
// A transaction has one question to the broker at a time. Operations that come meanwhile share the next one, so a
// client that does not wait for answers pays no round trip for each. The commit decides: it performs a transaction
// whose questions nobody answered, and refuses one whose lock has ended since the answer.

// check is an enlisted operation that is not answered yet.
type check struct {
	at    fsm.EntityRef
	locks []fsm.LockID                                // those that it ends; none: it sends to the entity
	done  func(ctx context.Context, codes []fsm.Code) // gets one code per lock, or one. The mutex is not held
}

// Check asks the broker about an enlisted operation: the end of some locks, or without locks a send to the entity.
// done gets one code per lock, or one; the mutex is not held during its call. The mutex is held.
func (t *Transaction) Check(ctx context.Context, at fsm.EntityRef, locks []fsm.LockID, done func(ctx context.Context, codes []fsm.Code)) {
	t.unchecked = append(t.unchecked, check{at, locks, done})
	if !t.checking {
		t.checking = true
		t.set.conn.Later(func() { t.checkNext(ctx) })
	}
}

// checkNext asks about the operations of the first entity that wait, or ends the check. The mutex is not held.
func (t *Transaction) checkNext(ctx context.Context) {
	c := t.set.conn
	c.Lock()
	defer c.Unlock()
	if len(t.unchecked) == 0 {
		t.checking = false
		t.resumeDischarge()
		return
	}
	first := t.unchecked[0]
	same := func(o check) bool {
		return o.at.Address() == first.at.Address() && (len(o.locks) == 0) == (len(first.locks) == 0)
	}
	var asked []check
	var locks []fsm.LockID
	for _, o := range t.unchecked {
		if same(o) {
			asked, locks = append(asked, o), append(locks, o.locks...)
		}
	}
	t.unchecked = slices.DeleteFunc(t.unchecked, same)
	c.Later(func() {
		t.set.broker.Check(first.at, locks, func(codes []fsm.Code) { t.checked(ctx, asked, codes) })
	})
}

// checked is the done function of Broker.Check.
func (t *Transaction) checked(ctx context.Context, asked []check, codes []fsm.Code) {
	defer t.set.conn.Recovered(ctx)
	for _, o := range asked {
		mine := codes
		if n := len(o.locks); n > 0 {
			mine, codes = codes[:n], codes[n:]
		}
		o.done(ctx, mine)
	}
	t.checkNext(ctx)
}

// Refused returns the reason why an operation on the entity at path is refused, and makes the transaction
// rollback-only. Its condition is empty if all codes are OK. The mutex is not held.
func (t *Transaction) Refused(codes []fsm.Code, path string) refusal.Cause {
	cause := refusal.SettleReplyOf(refusal.Worst(codes)).WithEntity(path).Cause
	if cause.Condition != "" {
		t.set.conn.Lock()
		defer t.set.conn.Unlock()
		t.MarkRollbackOnly(cause)
	}
	return cause
}

// Prepare counts an operation that is enlisted later, and Prepared ends it; a discharge waits for that. It returns the
// reason why nothing can be enlisted. The mutex is held.
func (t *Transaction) Prepare() refusal.Cause {
	if t.rollbackReason.Condition != "" {
		return t.rollbackOnly()
	}
	t.preparing++
	return refusal.Cause{}
}

// Prepared ends a prepared operation after its answer, and resumes a discharge that waits for it. The mutex is held.
func (t *Transaction) Prepared() {
	t.preparing--
	t.resumeDischarge()
}

// isPending reports whether operations of the transaction are not answered yet.
func (t *Transaction) isPending() bool { return t.checking || t.preparing > 0 }

// resumeDischarge ends the transaction if its discharge waits for nothing else. The mutex is held.
func (t *Transaction) resumeDischarge() {
	if resume := t.resume; resume != nil && !t.isPending() {
		t.resume = nil
		resume()
	}
}
