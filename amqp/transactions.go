package amqp

import (
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// transactions is the set of the transactions of one connection. It calls neither the broker nor the connection; the
// mutex of the connection guards it and each transaction in it. The zero value is empty.
type transactions struct {
	open       map[txnID]*transaction
	committing map[txnID]*transaction // passed to the broker
	expired    []txnID                // ids of the last transactions that took too long
	bytes      int                    // bytes of the open and the committing transactions
}

// declare opens a transaction that ends with the link l.
func (all *transactions) declare(l *incomingLink, now time.Time, id txnID) refusal.Cause {
	if len(all.open)+len(all.committing) >= transactionsMax {
		return refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The connection has %d open transactions; more are not possible. Discharge one first.", transactionsMax)
	}
	if all.open == nil {
		all.open = make(map[txnID]*transaction)
	}
	all.open[id] = &transaction{id: id, coordinator: l, deadline: now.Add(transactionWithin)}
	return refusal.Cause{}
}

// find finds an open transaction by its id, or returns the reason why there is none.
func (all *transactions) find(id *txnID) (*transaction, refusal.Cause) {
	if id == nil {
		return nil, unknownTransaction()
	}
	if t := all.open[*id]; t != nil {
		return t, refusal.Cause{}
	}
	for _, lapsed := range all.expired {
		if lapsed == *id {
			return nil, refusal.AfterChange(wire.ConditionTransactionTimeout, "The transaction took longer than %v and was rolled back: nothing of it was done. Declare another one, and do all of the work again in less time.", transactionWithin)
		}
	}
	return nil, unknownTransaction()
}

// enlist reserves space in a transaction for operations on messages of a total size; the caller then adds them
// to its work. A refusal makes the transaction rollback-only. The transaction may wait for its discharge.
func (all *transactions) enlist(t *transaction, sends, settlements, bytes int) (cause refusal.Cause) {
	bytes += (sends + settlements) * operationOverhead
	switch {
	case t.ended:
		return unknownTransaction()
	case t.rollbackReason.Condition != "":
		return t.rollbackOnlyRefusal()
	case t.sends+sends > transactionSendsMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The transaction would send more than %d messages; it can only be rolled back now. Send fewer in one transaction.", transactionSendsMax)
	case t.settlements+settlements > transactionSettlementsMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The transaction would settle more than %d messages; it can only be rolled back now. Settle fewer in one transaction.", transactionSettlementsMax)
	case t.bytes+bytes > transactionBytesMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The transaction would hold more than %d bytes; it can only be rolled back now. Do less in one transaction.", transactionBytesMax)
	case all.bytes+bytes > transactedTotalMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The open transactions of the connection would hold more than %d bytes; this one can only be rolled back now. Discharge some first, or use more connections.", transactedTotalMax)
	}
	if cause.Condition != "" {
		all.markRollbackOnly(t, cause)
		return cause
	}
	t.sends += sends
	t.settlements += settlements
	t.bytes += bytes
	all.bytes += bytes
	return refusal.Cause{}
}

// markRollbackOnly makes a transaction rollback-only and drops its operations. The deliveries that it would have
// settled remain unsettled, except those that the client has settled: it cannot settle them again over their link.
func (all *transactions) markRollbackOnly(t *transaction, cause refusal.Cause) {
	if t.rollbackReason.Condition == "" {
		t.rollbackReason = cause
	}
	for i := range t.deliveries {
		if e := &t.deliveries[i]; e.clientSettled {
			e.forget()
		}
	}
	all.bytes -= t.bytes
	t.bytes, t.work, t.deliveries, t.enlisted, t.locks = 0, fsm.Transaction{}, nil, nil, nil
}

// markRollbackOnlyByID makes the transaction of a refused operation rollback-only, if it is open.
func (all *transactions) markRollbackOnlyByID(id *txnID, cause refusal.Cause) {
	if id != nil {
		if t := all.open[*id]; t != nil {
			all.markRollbackOnly(t, cause)
		}
	}
}

// rollback ends a transaction without performing its operations. The deliveries that it would have settled
// remain locked and unsettled.
func (all *transactions) rollback(t *transaction) {
	all.markRollbackOnly(t, t.rollbackReason)
	delete(all.open, t.id)
	delete(all.committing, t.id)
	t.ended = true
}

// rollbackOf ends the transactions that a coordinator link has declared (part 4, 4.4.1).
func (all *transactions) rollbackOf(l *incomingLink) {
	for _, t := range all.open {
		if t.coordinator == l {
			all.rollback(t)
		}
	}
}

// expire rolls back transactions that took too long, and remembers their ids for later answers.
func (all *transactions) expire(now time.Time) {
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

// beginCommit closes a transaction to operations.
func (all *transactions) beginCommit(t *transaction) {
	delete(all.open, t.id)
	if all.committing == nil {
		all.committing = make(map[txnID]*transaction)
	}
	all.committing[t.id] = t
}

// endCommit removes a transaction that the broker has committed or refused.
func (all *transactions) endCommit(t *transaction) {
	delete(all.committing, t.id)
	all.bytes -= t.bytes
}

// firstDeadline returns when the first transaction expires; false if there is none.
func (all *transactions) firstDeadline() (first time.Time, ok bool) {
	for _, t := range all.open {
		if !ok || t.deadline.Before(first) {
			first, ok = t.deadline, true
		}
	}
	return first, ok
}
