package transaction

import (
	"container/list"
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Transaction collects the operations that a client wants to perform atomically. It checks them as far as possible
// without the state machine. Nothing is done before the commit, which does everything with one call. The mutex of
// the connection guards it.
type Transaction struct {
	set      *Set
	id       ID
	owner    any // the transaction ends with the link that declared it
	deadline time.Time
	place    *list.Element // in set.deadlines; nil: it is not open

	work        fsm.Transaction
	deliveries  Deliveries              // those that the settlements in work settle; nil for none
	locks       map[fsm.LockID]struct{} // those that the settlements in work end
	sends       int
	settlements int
	bytes       int

	// rollbackReason is the reason why the transaction can only be rolled back: an operation was refused. Java
	// ignores the outcome of a send in a transaction, and would commit the rest.
	rollbackReason refusal.Cause

	// home is the entity in which the transaction settles messages, cancels scheduled ones and sets states of sessions, and
	// homeShard the shard of their sequence numbers; nil before the first.
	home      *fsm.EntityRef
	homeShard int

	// abandoned is done when the transaction ends: it abandons the messages whose settlement was refused because they are
	// in a second partition of their entity. The service does so too.
	abandoned fsm.SettleAt

	pending pending
	ended   bool // rolled back: nothing can be enlisted
}

// Deliveries are the deliveries of links that a transaction settles. The mutex is held during each call.
type Deliveries interface {
	// Committed settles them: their transaction was committed.
	Committed()
	// RolledBack is called when the transaction has dropped its operations. They remain unsettled, except those that
	// the client has settled: it cannot settle them again over their link.
	RolledBack()
}

// ID returns the id of the transaction.
func (t *Transaction) ID() ID { return t.id }

// Deliveries returns what SettleOn was called with; nil if it was not called or the transaction has dropped its
// operations. The mutex is held.
func (t *Transaction) Deliveries() Deliveries { return t.deliveries }

// SettleOn sets the deliveries that the settlements of the transaction settle. The mutex is held.
func (t *Transaction) SettleOn(d Deliveries) { t.deliveries = d }

// reserve reserves space for operations on messages of a total size; the caller then adds them to the work. A
// refusal makes the transaction rollback-only. The transaction may wait for its discharge.
func (t *Transaction) reserve(sends, settlements, bytes int) (cause refusal.Cause) {
	bytes += (sends + settlements) * operationOverhead
	switch {
	case t.ended:
		return Unknown()
	case t.rollbackReason.Condition != "":
		return t.rollbackOnly()
	case t.sends+sends > SendsMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The transaction would send more than %d messages; it can only be rolled back now. Send fewer in one transaction.", SendsMax)
	case t.settlements+settlements > SettlementsMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The transaction would settle more than %d messages; it can only be rolled back now. Settle fewer in one transaction.", SettlementsMax)
	case t.bytes+bytes > BytesMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The transaction would hold more than %d bytes; it can only be rolled back now. Do less in one transaction.", BytesMax)
	case t.set.bytes+bytes > TotalBytesMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The open transactions of the connection would hold more than %d bytes; this one can only be rolled back now. Discharge some first, or use more connections.", TotalBytesMax)
	}
	if cause.Condition != "" {
		return t.refuse(cause)
	}
	t.sends += sends
	t.settlements += settlements
	t.bytes += bytes
	t.set.bytes += bytes
	return refusal.Cause{}
}

// Check asks the broker about an enlisted operation: the end of some locks, or without locks a send to the entity.
// done gets one code per lock, or one; the mutex is not held during its call. The mutex is held.
func (t *Transaction) Check(ctx context.Context, at fsm.EntityRef, locks []fsm.LockID, done func(ctx context.Context, codes []fsm.Code)) {
	t.pending.ask(ctx, check{at, locks, done})
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
	t.pending.preparing++
	return refusal.Cause{}
}

// Prepared ends a prepared operation after its answer, and resumes a discharge that waits for it. The mutex is held.
func (t *Transaction) Prepared() {
	t.pending.preparing--
	t.pending.resumeDischarge()
}

// MarkRollbackOnly makes the transaction rollback-only and drops its operations, except what it abandons at its end. The
// mutex is held.
func (t *Transaction) MarkRollbackOnly(cause refusal.Cause) {
	if t.rollbackReason.Condition == "" {
		t.rollbackReason = cause
	}
	if t.deliveries != nil {
		t.deliveries.RolledBack()
	}
	kept := len(t.abandoned.Settlements) * operationOverhead
	t.set.bytes += kept - t.bytes
	t.bytes, t.work, t.deliveries, t.locks = kept, fsm.Transaction{}, nil, nil
}

// abandon abandons the messages of abandoned. The mutex is held.
func (t *Transaction) abandon() {
	all, c := t.abandoned, t.set.conn
	if len(all.Settlements) == 0 {
		return
	}
	t.abandoned = fsm.SettleAt{}
	c.Later(func() {
		t.set.broker.Settle(all.At, all.Settlements, func(codes []fsm.Code) { c.CountSettled(all.Settlements, codes) })
	})
}

// refuse makes the transaction rollback-only for a cause, which it returns.
func (t *Transaction) refuse(cause refusal.Cause) refusal.Cause {
	if cause.Condition != "" {
		t.MarkRollbackOnly(cause)
	}
	return cause
}

// rollbackOnly returns the answer to further operations in a transaction that is rollback-only.
func (t *Transaction) rollbackOnly() refusal.Cause {
	return refusal.AfterChange(wire.ConditionTransactionRollback, "An operation of the transaction was refused, so nothing of it is done: %s Roll the transaction back, and do all of the work again in another one.", t.rollbackReason.Text)
}

// Send adds messages for an entity, which go through another one if via is not nil. A refusal makes the transaction
// rollback-only. The transaction may wait for its discharge. The mutex is held.
func (t *Transaction) Send(at fsm.EntityRef, via *fsm.EntityRef, messages []fsm.Message) refusal.Cause {
	bytes := 0
	for i := range messages {
		bytes += len(messages[i].Payload) + len(messages[i].Properties)
	}
	if cause := t.reserve(len(messages), 0, bytes); cause.Condition != "" {
		return cause
	}
	if cause := t.refuse(t.secondPartition(&at, messages)); cause.Condition != "" {
		return cause
	}
	for i := range t.work.Sends {
		s := &t.work.Sends[i]
		if s.At.ID == at.ID && (s.Via == nil) == (via == nil) && (via == nil || s.Via.ID == via.ID) {
			s.Messages = append(s.Messages, messages...)
			return refusal.Cause{}
		}
	}
	t.work.Sends = append(t.work.Sends, fsm.SendTo{At: at, Via: via, Messages: messages})
	return refusal.Cause{}
}

// Settle adds settlements at an entity, of which there is at least one. A lock can be settled once, and the
// transaction settles messages of one entity, and of one partition of that. A refusal makes the transaction
// rollback-only. The mutex is held.
func (t *Transaction) Settle(at fsm.EntityRef, settlements []fsm.Settlement) refusal.Cause {
	bytes := 0
	for i := range settlements {
		s := &settlements[i]
		bytes += len(s.Properties) + len(s.Reason) + len(s.Description)
	}
	if cause := t.reserve(0, len(settlements), bytes); cause.Condition != "" {
		return cause
	}
	return t.refuse(t.addSettlements(at, settlements))
}

// addSettlements adds settlements to the work, or returns the reason why they cannot be part of it.
func (t *Transaction) addSettlements(at fsm.EntityRef, settlements []fsm.Settlement) refusal.Cause {
	if t.locks == nil {
		t.locks = make(map[fsm.LockID]struct{}, len(settlements))
	}
	for i := range settlements {
		lock := settlements[i].Lock
		if cause := t.settleIn(at, lock.Sequence.Shard()); cause.Condition != "" {
			t.abandonSecondPartition(at, settlements)
			return cause
		}
		if _, twice := t.locks[lock]; twice {
			return refusal.New(wire.ConditionMessageLockLost, "The message is settled in this transaction already. Settle each message once.")
		}
		t.locks[lock] = struct{}{}
	}
	g := t.settlementsAt(at)
	g.Settlements = append(g.Settlements, settlements...)
	return refusal.Cause{}
}

// abandonSecondPartition records which of the refused settlements are in a second partition of the entity in which the
// transaction settles.
func (t *Transaction) abandonSecondPartition(at fsm.EntityRef, refused []fsm.Settlement) {
	if t.home.ID != at.ID {
		return
	}
	t.abandoned.At = at
	for i := range refused {
		if lock := refused[i].Lock; lock.Sequence.Shard() != t.homeShard {
			t.abandoned.Settlements = append(t.abandoned.Settlements, fsm.Settlement{Lock: lock, Verb: fsm.Abandon})
		}
	}
}

// settleIn records the entity and the shard in which the transaction settles and cancels, or returns the reason why it
// cannot be this one.
func (t *Transaction) settleIn(at fsm.EntityRef, shard int) refusal.Cause {
	switch {
	case t.home == nil:
		t.home, t.homeShard = &at, shard
	case t.home.ID != at.ID:
		return refusal.New(wire.ConditionNotAllowed, "The transaction settles messages of '%s', and this is a message of '%s'. Settle messages of one entity in a transaction.", t.home.Name, at.Name)
	case len(at.Shards) > 0 && t.homeShard != shard:
		return refusal.New(wire.ConditionNotAllowed, "The transaction settles messages of another partition of '%s'. Settle messages of one partition in a transaction.", at.Name)
	}
	return refusal.Cause{}
}

// secondPartition returns the reason why messages cannot be sent with those that the transaction sends to their
// partitioned entity already: all have one key, or none has a key.
func (t *Transaction) secondPartition(at *fsm.EntityRef, messages []fsm.Message) refusal.Cause {
	if len(at.Shards) == 0 || len(messages) == 0 {
		return refusal.Cause{}
	}
	first := &messages[0]
	for i := range t.work.Sends {
		if t.work.Sends[i].At.ID == at.ID {
			first = &t.work.Sends[i].Messages[0]
			break
		}
	}
	key, bound := at.ShardKey(first)
	for i := range messages {
		if other, too := at.ShardKey(&messages[i]); other != key || too != bound {
			return refusal.New(wire.ConditionNotAllowed, "The transaction sends messages with another partition key to '%s'. Send messages of one partition key to a partitioned entity in a transaction.", at.Name)
		}
	}
	return refusal.Cause{}
}

// settlementsAt returns the collection of settlements at an entity.
func (t *Transaction) settlementsAt(at fsm.EntityRef) *fsm.SettleAt {
	for i := range t.work.Settles {
		if s := &t.work.Settles[i]; s.At.Address() == at.Address() {
			return s
		}
	}
	t.work.Settles = append(t.work.Settles, fsm.SettleAt{At: at})
	return &t.work.Settles[len(t.work.Settles)-1]
}

// Cancel cancels scheduled messages of an entity: those that the transaction itself schedules are withdrawn at once,
// the cancellation of others is added. A refusal makes the transaction rollback-only. The mutex is held.
func (t *Transaction) Cancel(at fsm.EntityRef, numbers []fsm.SequenceNumber) refusal.Cause {
	others := t.withdraw(at.ID, numbers)
	if cause := t.reserve(0, len(others), 0); cause.Condition != "" || len(others) == 0 {
		return cause
	}
	for _, n := range others {
		if cause := t.refuse(t.settleIn(at, n.Shard())); cause.Condition != "" {
			return cause
		}
	}
	t.work.Cancels = append(t.work.Cancels, fsm.CancelAt{At: at, Sequences: others})
	return refusal.Cause{}
}

// withdraw removes messages that the transaction itself schedules at an entity, and returns the other numbers.
func (t *Transaction) withdraw(at fsm.EntityID, numbers []fsm.SequenceNumber) (others []fsm.SequenceNumber) {
	own := make(map[fsm.SequenceNumber]struct{})
	for i := range t.work.Sends {
		s := &t.work.Sends[i]
		if s.At.ID != at {
			continue
		}
		s.Messages = slices.DeleteFunc(s.Messages, func(m fsm.Message) bool {
			if m.Reserved == 0 || !slices.Contains(numbers, m.Reserved) {
				return false
			}
			own[m.Reserved] = struct{}{}
			return true
		})
	}
	t.work.Sends = slices.DeleteFunc(t.work.Sends, func(s fsm.SendTo) bool { return len(s.Messages) == 0 })
	t.sends -= len(own)
	for _, n := range numbers {
		if _, withdrawn := own[n]; !withdrawn {
			others = append(others, n)
		}
	}
	return others
}

// SetState adds the state of a session, instead of one that the transaction would set before. A refusal makes the
// transaction rollback-only. The mutex is held.
func (t *Transaction) SetState(at fsm.EntityRef, state fsm.StateAt) refusal.Cause {
	again := slices.IndexFunc(t.work.States, func(s fsm.StateAt) bool { return s.State.Lock == state.State.Lock })
	count := 1
	if again >= 0 {
		count = 0
	}
	if cause := t.reserve(0, count, len(state.State.State)); cause.Condition != "" {
		return cause
	}
	if t.home != nil && t.home.ID != at.ID {
		return t.refuse(t.settleIn(at, 0))
	}
	if again >= 0 {
		t.work.States[again] = state
	} else {
		t.work.States = append(t.work.States, state)
	}
	return refusal.Cause{}
}
