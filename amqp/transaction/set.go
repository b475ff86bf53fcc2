package transaction

import (
	"container/list"
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
)

// Set is the transactions of one connection. The mutex of the connection guards it.
type Set struct {
	conn   Connection
	broker Broker

	open       map[ID]*Transaction
	committing map[ID]*Transaction // passed to the broker, or waiting for answers before that
	deadlines  list.List           // the open transactions, by deadline
	waiting    []*declaration      // by arrival
	expired    map[ID]struct{}     // the last transactions that took too long
	expiredIDs []ID                // expired, by age
	bytes      int                 // bytes of the open and the committing transactions
}

// NewSet returns an empty Set, which must not be copied once it is used.
func NewSet(conn Connection, broker Broker) Set { return Set{conn: conn, broker: broker} }

// Len returns the number of transactions that are open or being committed. The mutex is held.
func (all *Set) Len() int { return len(all.open) + len(all.committing) }

// Bytes returns what the transactions hold, in bytes. The mutex is held.
func (all *Set) Bytes() int { return all.bytes }

// declaration is a declare that waits until another transaction ends.
type declaration struct {
	owner any
	id    ID
	done  func(refusal.Cause)
	timer *time.Timer
}

// Declare opens a transaction that ends with its owner, the link that declares it, and calls done from Unlock. When the
// connection has OpenMax transactions, or more memory than its share, it waits up to DeclareWithin for another one to
// end. done then gets the outcome later, or [Unknown] when the owner ends before. The mutex is held, but not during done.
func (all *Set) Declare(ctx context.Context, owner any, id ID, done func(refusal.Cause)) (waits bool) {
	w := &declaration{owner: owner, id: id, done: done}
	switch {
	case all.admits() && len(all.waiting) == 0:
		all.begin(w)
		return false
	case len(all.waiting) >= waitingMax:
		all.answer(w, tooMany())
		return false
	}
	all.waiting = append(all.waiting, w)
	w.timer = time.AfterFunc(DeclareWithin, func() {
		defer all.conn.Recovered(ctx)
		all.conn.Lock()
		defer all.conn.Unlock()
		i := slices.Index(all.waiting, w)
		if i < 0 {
			return // it was answered meanwhile
		}
		all.waiting = slices.Delete(all.waiting, i, i+1)
		if all.admits() {
			all.begin(w)
		} else {
			all.answer(w, tooMany())
		}
	})
	return true
}

func tooMany() refusal.Cause {
	return refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The connection may have %d open transactions, and another one could not be opened within %v. Use another client, or fewer concurrent calls.", OpenMax, DeclareWithin)
}

// admits reports whether another transaction may be opened.
func (all *Set) admits() bool { return all.Len() < OpenMax && !all.conn.ShortOfMemory() }

// begin opens the transaction of a declare.
func (all *Set) begin(w *declaration) {
	if all.open == nil {
		all.open = make(map[ID]*Transaction)
	}
	t := &Transaction{set: all, id: w.id, owner: w.owner, deadline: time.Now().Add(Within), pending: pending{conn: all.conn, broker: all.broker}}
	t.place = all.deadlines.PushBack(t)
	all.open[w.id] = t
	all.answer(w, refusal.Cause{})
}

// answer calls done of a declare at the next Unlock.
func (all *Set) answer(w *declaration, cause refusal.Cause) {
	if w.timer != nil {
		w.timer.Stop()
	}
	all.conn.Later(func() { w.done(cause) })
}

// admitWaiting opens the transactions of declares that wait, as far as the limits admit them.
func (all *Set) admitWaiting() {
	for len(all.waiting) > 0 && all.admits() {
		w := all.waiting[0]
		all.waiting = slices.Delete(all.waiting, 0, 1)
		all.begin(w)
	}
}

// Find finds an open transaction by its id, or returns the reason why there is none. The mutex is held.
func (all *Set) Find(id *ID) (*Transaction, refusal.Cause) {
	if id == nil {
		return nil, Unknown()
	}
	if t := all.open[*id]; t != nil {
		return t, refusal.Cause{}
	}
	if _, lapsed := all.expired[*id]; lapsed {
		return nil, refusal.AfterChange(wire.ConditionTransactionTimeout, "The transaction took longer than %v and was rolled back: nothing of it was done. Declare another one, and do all of the work again in less time.", Within)
	}
	return nil, Unknown()
}

// Unknown returns the refusal of an operation in a transaction that is not open.
func Unknown() refusal.Cause {
	return refusal.AfterChange(wire.ConditionTransactionUnknownID, "The connection has no such open transaction: it was discharged, or was rolled back with its coordinator link, or is of another connection. Declare another one, and do all of the work again.")
}

// MarkRollbackOnly makes the transaction of a refused operation rollback-only, if it is open. The mutex is held.
func (all *Set) MarkRollbackOnly(id *ID, cause refusal.Cause) {
	if id != nil {
		if t := all.open[*id]; t != nil {
			t.MarkRollbackOnly(cause)
		}
	}
}

// rollback ends a transaction without performing its operations. The deliveries that it would have settled
// remain locked and unsettled, except those that it abandons.
func (all *Set) rollback(t *Transaction) {
	t.abandon()
	t.MarkRollbackOnly(t.rollbackReason)
	all.close(t)
	delete(all.committing, t.id)
	t.ended = true
	all.admitWaiting()
}

// close removes a transaction from the open ones.
func (all *Set) close(t *Transaction) {
	delete(all.open, t.id)
	if t.place != nil {
		all.deadlines.Remove(t.place)
		t.place = nil
	}
}

// RollbackOf ends the transactions that an owner has declared (part 4, 4.4.1). The mutex is held.
func (all *Set) RollbackOf(owner any) {
	all.waiting = slices.DeleteFunc(all.waiting, func(w *declaration) bool {
		if w.owner == owner {
			all.answer(w, Unknown())
		}
		return w.owner == owner
	})
	for _, t := range all.open {
		if t.owner == owner {
			all.rollback(t)
		}
	}
}

// Expire rolls back transactions that took too long, and remembers their ids for later answers. The mutex is held.
func (all *Set) Expire(now time.Time) {
	for {
		first, ok := all.FirstDeadline()
		if !ok || now.Before(first) {
			return
		}
		t, _ := all.deadlines.Front().Value.(*Transaction)
		if len(all.expiredIDs) >= expiredTransactionsMax {
			delete(all.expired, all.expiredIDs[0])
			all.expiredIDs = slices.Delete(all.expiredIDs, 0, 1)
		}
		if all.expired == nil {
			all.expired = make(map[ID]struct{})
		}
		all.expired[t.id] = struct{}{}
		all.expiredIDs = append(all.expiredIDs, t.id)
		all.rollback(t)
	}
}

// FirstDeadline returns when the first transaction expires; false if there is none. The mutex is held.
func (all *Set) FirstDeadline() (first time.Time, ok bool) {
	front := all.deadlines.Front()
	if front == nil {
		return first, false
	}
	t, _ := front.Value.(*Transaction)
	return t.deadline, true
}

// beginCommit closes a transaction to operations.
func (all *Set) beginCommit(t *Transaction) {
	all.close(t)
	if all.committing == nil {
		all.committing = make(map[ID]*Transaction)
	}
	all.committing[t.id] = t
}

// endCommit removes a transaction that the broker has committed or refused.
func (all *Set) endCommit(t *Transaction) {
	delete(all.committing, t.id)
	all.bytes -= t.bytes
	all.admitWaiting()
}
