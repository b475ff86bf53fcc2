package transaction

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of the transactions of a connection.
const (
	OpenMax                = 16              // of one connection, including those being committed
	SendsMax               = 100             // messages sent in one transaction: the maximum of the cloud
	SettlementsMax         = 1000            // messages settled in one transaction
	BytesMax               = 16 << 20        // one transaction: payloads, and the properties of settlements
	TotalBytesMax          = 32 << 20        // all transactions of a connection together
	Within                 = 2 * time.Minute // from declare to discharge
	expiredTransactionsMax = 64              // remembered ids of transactions that took too long
	operationOverhead      = 256             // bytes counted for an operation in addition to its payload
)

// Connection is what a Set needs of its connection. Its mutex guards the Set and every Transaction in it.
type Connection interface {
	// Lock locks the mutex. Unlock unlocks it, and then makes the calls that Later collected.
	sync.Locker
	// Later makes a call at the next Unlock. The mutex is held.
	Later(call func())
	// Recovered is deferred by functions that a goroutine of the broker calls. It handles a panic.
	Recovered(ctx context.Context)
	// Committed is told what was committed. The mutex is held.
	Committed(work *fsm.Transaction)
}

// Broker has the methods of amqp.Broker that transactions call; the same rules apply to them.
type Broker interface {
	Check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code))
	Transact(tx fsm.Transaction, done func(fsm.Code))
}

// Set is the transactions of one connection. The mutex of the connection guards it.
type Set struct {
	conn   Connection
	broker Broker

	open       map[ID]*Transaction
	committing map[ID]*Transaction // passed to the broker, or waiting for answers before that
	expired    []ID                // ids of the last transactions that took too long
	bytes      int                 // bytes of the open and the committing transactions
}

// NewSet returns an empty Set, which must not be copied once it is used.
func NewSet(conn Connection, broker Broker) Set { return Set{conn: conn, broker: broker} }

// Len returns the number of transactions that are open or being committed. The mutex is held.
func (all *Set) Len() int { return len(all.open) + len(all.committing) }

// Bytes returns what the transactions hold, in bytes. The mutex is held.
func (all *Set) Bytes() int { return all.bytes }

// Declare opens a transaction that ends with its owner, the link that declares it. The mutex is held.
func (all *Set) Declare(owner any, now time.Time, id ID) refusal.Cause {
	if all.Len() >= OpenMax {
		return refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The connection has %d open transactions; more are not possible. Discharge one first.", OpenMax)
	}
	if all.open == nil {
		all.open = make(map[ID]*Transaction)
	}
	all.open[id] = &Transaction{set: all, id: id, owner: owner, deadline: now.Add(Within)}
	return refusal.Cause{}
}

// Find finds an open transaction by its id, or returns the reason why there is none. The mutex is held.
func (all *Set) Find(id *ID) (*Transaction, refusal.Cause) {
	if id == nil {
		return nil, Unknown()
	}
	if t := all.open[*id]; t != nil {
		return t, refusal.Cause{}
	}
	for _, lapsed := range all.expired {
		if lapsed == *id {
			return nil, refusal.AfterChange(wire.ConditionTransactionTimeout, "The transaction took longer than %v and was rolled back: nothing of it was done. Declare another one, and do all of the work again in less time.", Within)
		}
	}
	return nil, Unknown()
}

// Unknown returns the refusal of an operation in a transaction that is not open.
func Unknown() refusal.Cause {
	return refusal.AfterChange(wire.ConditionTransactionUnknownID, "The connection has no such open transaction: it was discharged, or was rolled back with its coordinator link, or is of another connection. Declare another one, and do all of the work again.")
}

// Each calls visit with each transaction, open ones and those that are being committed. The mutex is held.
func (all *Set) Each(visit func(*Transaction)) {
	for _, t := range all.open {
		visit(t)
	}
	for _, t := range all.committing {
		visit(t)
	}
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
// remain locked and unsettled.
func (all *Set) rollback(t *Transaction) {
	t.MarkRollbackOnly(t.rollbackReason)
	delete(all.open, t.id)
	delete(all.committing, t.id)
	t.ended = true
}

// RollbackOf ends the transactions that an owner has declared (part 4, 4.4.1). The mutex is held.
func (all *Set) RollbackOf(owner any) {
	for _, t := range all.open {
		if t.owner == owner {
			all.rollback(t)
		}
	}
}

// Expire rolls back transactions that took too long, and remembers their ids for later answers. The mutex is held.
func (all *Set) Expire(now time.Time) {
	for _, t := range all.open {
		if now.Before(t.deadline) {
			continue
		}
		all.rollback(t)
		if len(all.expired) >= expiredTransactionsMax {
			all.expired = append(all.expired[:0], all.expired[1:]...)
		}
		all.expired = append(all.expired, t.id)
	}
}

// FirstDeadline returns when the first transaction expires; false if there is none. The mutex is held.
func (all *Set) FirstDeadline() (first time.Time, ok bool) {
	for _, t := range all.open {
		if !ok || t.deadline.Before(first) {
			first, ok = t.deadline, true
		}
	}
	return first, ok
}

// beginCommit closes a transaction to operations.
func (all *Set) beginCommit(t *Transaction) {
	delete(all.open, t.id)
	if all.committing == nil {
		all.committing = make(map[ID]*Transaction)
	}
	all.committing[t.id] = t
}

// endCommit removes a transaction that the broker has committed or refused.
func (all *Set) endCommit(t *Transaction) {
	delete(all.committing, t.id)
	all.bytes -= t.bytes
}
