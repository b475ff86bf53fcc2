package amqp

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// txnID identifies a transaction: 16 random bytes.
type txnID [16]byte

// txnIDOf reads the id that a peer sent; false if the gateway cannot have issued it.
func txnIDOf(b []byte) (id txnID, ok bool) {
	if len(b) != len(id) {
		return id, false
	}
	return txnID(b), true
}

func (id txnID) String() string { return hex.EncodeToString(id[:]) }

// transaction collects the operations that a client wants to perform atomically. The gateway checks them as
// far as possible without the state machine. Nothing is done before the commit, which does everything with one
// call. The mutex of the connection guards it.
type transaction struct {
	id          txnID
	coordinator *incomingLink // the transaction ends with the link that declared it
	deadline    time.Time

	work       fsm.Transaction
	deliveries []enlistedDelivery // the deliveries that the settlements in work settle
	operations int
	bytes      int

	// rollbackReason is the reason why the transaction can only be rolled back: an operation was refused. Java
	// ignores the outcome of a send in a transaction, and would commit the rest.
	rollbackReason refusal
}

// enlistedDelivery is one delivery that a transaction settles. It remains in the unsettled map of its session
// until the commit, so that the client can settle it again after a rollback.
type enlistedDelivery struct {
	session *session
	settledDelivery
}

// declare opens a transaction.
func (c *conn) declare(l *incomingLink, now time.Time, id txnID) refusal {
	if len(c.transactions)+c.committing >= transactionsMax {
		return refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The connection has %d open transactions; more are not possible. Discharge one first.", transactionsMax), retryAfterChange}
	}
	if c.transactions == nil {
		c.transactions = make(map[txnID]*transaction)
	}
	c.transactions[id] = &transaction{id: id, coordinator: l, deadline: now.Add(transactionWithin)}
	c.resetTimer()
	return refusal{}
}

// transaction finds an open transaction by its id, or returns the reason why there is none.
func (c *conn) transaction(id *txnID) (*transaction, refusal) {
	if id == nil {
		return nil, unknownTransaction()
	}
	if t := c.transactions[*id]; t != nil {
		return t, refusal{}
	}
	for _, lapsed := range c.expiredTransactions {
		if lapsed == *id {
			return nil, refusal{wire.ConditionTransactionTimeout, fmt.Sprintf("The transaction took longer than %v and was rolled back: nothing of it was done. Declare another one, and do all of the work again in less time.", transactionWithin), retryAfterChange}
		}
	}
	return nil, unknownTransaction()
}

func unknownTransaction() refusal {
	return refusal{wire.ConditionTransactionUnknownID, "The connection has no such open transaction: it was discharged, or was rolled back with its coordinator link, or is of another connection. Declare another one, and do all of the work again.", retryAfterChange}
}

// enlist reserves space in a transaction for operations on messages of a total size; the caller then adds them
// to its work. A refusal makes the transaction rollback-only.
func (c *conn) enlist(id *txnID, operations, bytes int) (*transaction, refusal) {
	t, cause := c.transaction(id)
	bytes += operations * operationOverhead
	switch {
	case cause.condition != "":
		return nil, cause
	case t.rollbackReason.condition != "":
		return nil, t.rollbackOnlyRefusal()
	case t.operations+operations > transactionOperationsMax:
		cause = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The transaction would send and settle more than %d messages; it can only be rolled back now. Do less in one transaction.", transactionOperationsMax), retryAfterChange}
	case t.bytes+bytes > transactionBytesMax:
		cause = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The transaction would hold more than %d bytes; it can only be rolled back now. Do less in one transaction.", transactionBytesMax), retryAfterChange}
	case c.transactedBytes+bytes > transactedTotalMax:
		cause = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The open transactions of the connection would hold more than %d bytes; this one can only be rolled back now. Discharge some first, or use more connections.", transactedTotalMax), retryAfterChange}
	}
	if cause.condition != "" {
		c.markRollbackOnly(t, cause)
		return nil, cause
	}
	t.operations += operations
	t.bytes += bytes
	c.transactedBytes += bytes
	return t, refusal{}
}

// markRollbackOnly makes a transaction rollback-only and drops its operations.
func (c *conn) markRollbackOnly(t *transaction, cause refusal) {
	if t.rollbackReason.condition == "" {
		t.rollbackReason = cause
	}
	c.transactedBytes -= t.bytes
	t.bytes, t.work, t.deliveries = 0, fsm.Transaction{}, nil
}

// markRollbackOnlyByID makes the transaction of a refused operation rollback-only, if it is open.
func (c *conn) markRollbackOnlyByID(id *txnID, cause refusal) {
	if id != nil {
		if t := c.transactions[*id]; t != nil {
			c.markRollbackOnly(t, cause)
		}
	}
}

// rollbackOnlyRefusal returns the answer to further operations in a transaction that is rollback-only.
func (t *transaction) rollbackOnlyRefusal() refusal {
	return refusal{wire.ConditionTransactionRollback, "An operation of the transaction was refused, so nothing of it is done: " + t.rollbackReason.text + " Roll the transaction back, and do all of the work again in another one.", retryAfterChange}
}

// enlistSends adds messages for the entity of a link.
func (c *conn) enlistSends(id *txnID, at fsm.EntityRef, via *fsm.EntityRef, messages []fsm.Message) refusal {
	bytes := 0
	for i := range messages {
		bytes += len(messages[i].Payload) + len(messages[i].Properties)
	}
	t, cause := c.enlist(id, len(messages), bytes)
	if cause.condition != "" {
		return cause
	}
	for i := range t.work.Sends {
		s := &t.work.Sends[i]
		if s.At.ID == at.ID && (s.Via == nil) == (via == nil) && (via == nil || s.Via.ID == via.ID) {
			s.Messages = append(s.Messages, messages...)
			return refusal{}
		}
	}
	t.work.Sends = append(t.work.Sends, fsm.SendTo{At: at, Via: via, Messages: messages})
	return refusal{}
}

// enlistSettlements adds settlements at an entity. A lock can be settled once.
func (c *conn) enlistSettlements(id *txnID, at fsm.EntityRef, settlements []fsm.Settlement) (*transaction, refusal) {
	bytes := 0
	for i := range settlements {
		s := &settlements[i]
		bytes += len(s.Properties) + len(s.Reason) + len(s.Description)
	}
	t, cause := c.enlist(id, len(settlements), bytes)
	if cause.condition != "" {
		return nil, cause
	}
	g := t.settlementsAt(at)
	for i := range settlements {
		for j := range g.Settlements {
			if g.Settlements[j].Lock == settlements[i].Lock {
				cause = newRefusal(wire.ConditionMessageLockLost, "The message is settled in this transaction already. Settle each message once.")
				c.markRollbackOnly(t, cause)
				return nil, cause
			}
		}
		g.Settlements = append(g.Settlements, settlements[i])
	}
	return t, refusal{}
}

// settlementsAt returns the collection of settlements at an entity.
func (t *transaction) settlementsAt(at fsm.EntityRef) *fsm.SettleAt {
	for i := range t.work.Settles {
		if s := &t.work.Settles[i]; s.At.Address() == at.Address() {
			return s
		}
	}
	t.work.Settles = append(t.work.Settles, fsm.SettleAt{At: at})
	return &t.work.Settles[len(t.work.Settles)-1]
}

// rollback ends a transaction without performing its operations. The deliveries that it would have settled
// remain locked and unsettled.
func (c *conn) rollback(t *transaction) {
	c.markRollbackOnly(t, t.rollbackReason)
	delete(c.transactions, t.id)
}

// rollbackOf ends the transactions that a coordinator link has declared (part 4, 4.4.1).
func (c *conn) rollbackOf(l *incomingLink) {
	for _, t := range c.transactions {
		if t.coordinator == l {
			c.rollback(t)
		}
	}
}

// expireTransactions rolls back transactions that took too long, and remembers their ids for later answers.
func (c *conn) expireTransactions(now time.Time) {
	for _, t := range c.transactions {
		if now.Before(t.deadline) {
			continue
		}
		c.rollback(t)
		if len(c.expiredTransactions) >= expiredTransactionsMax {
			c.expiredTransactions = append(c.expiredTransactions[:0], c.expiredTransactions[1:]...)
		}
		c.expiredTransactions = append(c.expiredTransactions, t.id)
	}
}

// commit performs a whole transaction, and then answers the discharge. mu is held.
func (c *conn) commit(ctx context.Context, t *transaction, a *incomingDelivery) {
	delete(c.transactions, t.id)
	c.committing++
	discharge, work := *a, t.work
	t.work = fsm.Transaction{}
	c.brokerCalls = append(c.brokerCalls, func() {
		c.config.Broker.Transact(work, func(code fsm.Code) {
			if code == fsm.OK {
				c.countCommitted(&work)
			}
			c.committed(ctx, t, &discharge, code)
		})
	})
}

// committed is the done function of Broker.Transact.
func (c *conn) committed(ctx context.Context, t *transaction, discharge *incomingDelivery, code fsm.Code) {
	defer c.recovered(ctx)
	c.mu.Lock()
	c.committing--
	c.transactedBytes -= t.bytes
	if code == fsm.OK {
		for _, e := range t.deliveries {
			if u, ok := e.session.unsettled[e.id]; ok && u == e.unsettled {
				delete(e.session.unsettled, e.id)
				e.session.countUnsettled()
				e.session.unsettledFreed()
			}
		}
	}
	c.unlock()
	c.finishSend(ctx, discharge, commitRefusal(code))
}

// commitRefusal returns the reason why a transaction was not committed. Its condition is empty for OK.
func commitRefusal(code fsm.Code) refusal {
	v := settleReplyOf(code)
	switch code { //nolint:exhaustive // what the others say is true of a transaction too
	case fsm.OK:
		return refusal{}
	case fsm.Timeout:
		return refusal{wire.ConditionTransactionTimeout, "It is not known whether the transaction was committed: all of it was done, or nothing. Find out which before you do the work again.", retryLater}
	case fsm.NotAllowed:
		v.text = "it settles messages of entities that lie in different partitions of the cluster, or sends through an entity of another partition, or does what one of its entities does not allow. Settle the messages of one entity in a transaction, and send through that."
	case fsm.InvalidArgument:
		v.text += " Or more is sent or settled than fits into one transaction; then do less in one."
	}
	return refusal{wire.ConditionTransactionRollback, "The transaction was rolled back, and nothing of it was done: " + v.text, v.retry}
}

// firstTransactionDeadline returns when the first transaction of the connection expires; false if there is
// none.
func (c *conn) firstTransactionDeadline() (first time.Time, ok bool) {
	for _, t := range c.transactions {
		if !ok || t.deadline.Before(first) {
			first, ok = t.deadline, true
		}
	}
	return first, ok
}

// settleInTransaction handles a disposition that is part of a transaction: its settlements are enlisted, and
// the client gets the outcome that they will have. A refusal is answered with a plain rejected, because Java
// considers every transactional state a success.
func (s *session) settleInTransaction(ctx context.Context, d *wire.Disposition, last uint32, state *wire.TransactionalState) {
	c := s.conn
	taken := s.takeUnsettled(d.First, last)
	for _, t := range taken {
		s.unsettled[t.id] = t.unsettled // kept until the commit
	}
	what := decideInTransaction(state.Outcome)
	var id *txnID
	if known, ok := txnIDOf(state.TxnID); ok {
		id = &known
	}
	cause := what.refused
	if cause.condition == "" {
		cause = s.enlistDeliveries(id, taken, what)
	}
	if cause.condition != "" {
		c.markRollbackOnlyByID(id, cause)
		if !d.Settled {
			s.reject(c.newError(ctx, cause), d.First, last)
		}
		return
	}
	for i := 0; i < len(taken) && !d.Settled; {
		first := i
		for i++; i < len(taken) && taken[i].id == taken[i-1].id+1; i++ {
		}
		end := taken[i-1].id
		s.conn.emitDisposition(s.channel, &wire.Disposition{
			Role: wire.RoleSender, First: taken[first].id, Last: &end, Settled: true,
			State: &wire.TransactionalState{TxnID: id[:], Outcome: what.outcome.state()},
		})
	}
}

// decideInTransaction is decide for an outcome within a transaction.
func decideInTransaction(outcome any) decision {
	what := decide(outcome, false)
	switch {
	case what.notTerminal:
		what.refused = newRefusal(wire.ConditionInvalidField, "A settlement in a transaction has no outcome. Give it one.")
	case what.refused.condition == "" && what.settlement.Verb == fsm.Release:
		what.refused = newRefusal(wire.ConditionNotAllowed, "A message cannot be released in a transaction. Abandon it, or release it outside of one.")
	}
	return what
}

// enlistDeliveries enlists deliveries, which may belong to several links.
func (s *session) enlistDeliveries(id *txnID, taken []settledDelivery, what decision) refusal {
	c := s.conn
	if _, cause := c.transaction(id); cause.condition != "" {
		return cause
	}
	if len(taken) == 0 {
		return errorReplyOf(fsm.MessageLockLost).refusal
	}
	for len(taken) > 0 {
		l, n := taken[0].link, 1
		for n < len(taken) && taken[n].link == l {
			n++
		}
		if l.kind != entityNode { // responses: the broker has nothing to settle
			for _, t := range taken[:n] {
				delete(s.unsettled, t.id)
			}
			taken = taken[n:]
			continue
		}
		if n > transactionOperationsMax {
			n = transactionOperationsMax + 1 // too many, without ever allocating a large slice
		}
		settlements := make([]fsm.Settlement, n)
		for i, t := range taken[:n] {
			settlements[i] = what.settlement
			settlements[i].Lock = t.lock
		}
		t, cause := c.enlistSettlements(id, l.entity, settlements)
		if cause.condition != "" {
			return cause
		}
		for _, one := range taken[:n] {
			t.deliveries = append(t.deliveries, enlistedDelivery{s, one})
		}
		taken = taken[n:]
	}
	return refusal{}
}
