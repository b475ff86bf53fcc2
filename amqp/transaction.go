package amqp

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// txnID is the name of a transaction, 16 random bytes.
type txnID [16]byte

// txnIDOf is the id that a peer names; false when it is none of ours.
func txnIDOf(b []byte) (id txnID, ok bool) {
	if len(b) != len(id) {
		return id, false
	}
	return txnID(b), true
}

func (id txnID) String() string { return hex.EncodeToString(id[:]) }

// transaction is the work that a client wants done as a whole. It is gathered here and
// checked as far as that can be done without the machine; nothing of it is done before the
// commit, and then all of it with one call. It belongs to the connection's mutex.
type transaction struct {
	id          txnID
	coordinator *incomingLink // it does not outlive the link that declared it
	deadline    time.Time

	work       fsm.Transaction
	taken      []enlisted // the deliveries that work settles
	operations int
	bytes      int

	// doom is why it can only be rolled back: an operation was refused. Java does not look at
	// what becomes of a send in a transaction, and would commit the rest.
	doom refusal
}

// enlisted is one delivery that a transaction settles. It stays in the unsettled map of its
// session until the commit, so that the client can settle it again after a rollback.
type enlisted struct {
	session *session
	took
}

// declare opens a transaction.
func (c *conn) declare(l *incomingLink, now time.Time, id txnID) refusal {
	if len(c.transactions)+c.committing >= transactionsMax {
		return refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The connection has %d open transactions; more are not possible. Discharge one first.", transactionsMax), afterChange}
	}
	if c.transactions == nil {
		c.transactions = make(map[txnID]*transaction)
	}
	c.transactions[id] = &transaction{id: id, coordinator: l, deadline: now.Add(transactionWithin)}
	c.retime()
	return refusal{}
}

// transaction finds an open transaction by its id, or says why it cannot be worked in.
func (c *conn) transaction(id *txnID) (*transaction, refusal) {
	if id == nil {
		return nil, unknownTransaction()
	}
	if t := c.transactions[*id]; t != nil {
		return t, refusal{}
	}
	for _, lapsed := range c.lapsed {
		if lapsed == *id {
			return nil, refusal{wire.ConditionTransactionTimeout, fmt.Sprintf("The transaction took longer than %v and was rolled back: nothing of it was done. Declare another one, and do all of the work again in less time.", transactionWithin), afterChange}
		}
	}
	return nil, unknownTransaction()
}

func unknownTransaction() refusal {
	return refusal{wire.ConditionTransactionUnknownID, "The connection has no such open transaction: it was discharged, or was rolled back with its coordinator link, or is of another connection. Declare another one, and do all of the work again.", afterChange}
}

// enlist makes room in a transaction for operations on messages, together of a size; the
// caller then adds them to its work. A refusal dooms the transaction.
func (c *conn) enlist(id *txnID, operations, bytes int) (*transaction, refusal) {
	t, why := c.transaction(id)
	bytes += operations * operationOverhead
	switch {
	case why.condition != "":
		return nil, why
	case t.doom.condition != "":
		return nil, t.rolledBack()
	case t.operations+operations > transactionOperationsMax:
		why = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The transaction would send and settle more than %d messages; it can only be rolled back now. Do less in one transaction.", transactionOperationsMax), afterChange}
	case t.bytes+bytes > transactionBytesMax:
		why = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The transaction would hold more than %d bytes; it can only be rolled back now. Do less in one transaction.", transactionBytesMax), afterChange}
	case c.transacted+bytes > transactedBytesMax:
		why = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The open transactions of the connection would hold more than %d bytes; this one can only be rolled back now. Discharge some first, or use more connections.", transactedBytesMax), afterChange}
	}
	if why.condition != "" {
		c.condemn(t, why)
		return nil, why
	}
	t.operations += operations
	t.bytes += bytes
	c.transacted += bytes
	return t, refusal{}
}

// condemn lets a transaction be rolled back only, and lets go of its work.
func (c *conn) condemn(t *transaction, why refusal) {
	if t.doom.condition == "" {
		t.doom = why
	}
	c.transacted -= t.bytes
	t.bytes, t.work, t.taken = 0, fsm.Transaction{}, nil
}

// doom condemns the transaction of an operation that was refused, if it is open.
func (c *conn) doom(id *txnID, why refusal) {
	if id != nil {
		if t := c.transactions[*id]; t != nil {
			c.condemn(t, why)
		}
	}
}

// rolledBack is the answer to whoever goes on with a transaction that is doomed.
func (t *transaction) rolledBack() refusal {
	return refusal{wire.ConditionTransactionRollback, "An operation of the transaction was refused, so nothing of it is done: " + t.doom.text + " Roll the transaction back, and do all of the work again in another one.", afterChange}
}

// enlistSends adds messages for the entity of a link.
func (c *conn) enlistSends(id *txnID, at fsm.Place, via *fsm.Place, messages []fsm.Message) refusal {
	bytes := 0
	for i := range messages {
		bytes += len(messages[i].Payload) + len(messages[i].Properties)
	}
	t, why := c.enlist(id, len(messages), bytes)
	if why.condition != "" {
		return why
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

// enlistSettlements adds settlements at a place. A lock can be settled once.
func (c *conn) enlistSettlements(id *txnID, at fsm.Place, settlements []fsm.Settlement) (*transaction, refusal) {
	bytes := 0
	for i := range settlements {
		s := &settlements[i]
		bytes += len(s.Properties) + len(s.Reason) + len(s.Description)
	}
	t, why := c.enlist(id, len(settlements), bytes)
	if why.condition != "" {
		return nil, why
	}
	g := t.settlesAt(at)
	for i := range settlements {
		for j := range g.Settlements {
			if g.Settlements[j].Lock == settlements[i].Lock {
				why = refused(wire.ConditionMessageLockLost, "The message is settled in this transaction already. Settle each message once.")
				c.condemn(t, why)
				return nil, why
			}
		}
		g.Settlements = append(g.Settlements, settlements[i])
	}
	return t, refusal{}
}

// settlesAt is where the settlements of a place are gathered.
func (t *transaction) settlesAt(at fsm.Place) *fsm.SettleAt {
	for i := range t.work.Settles {
		if s := &t.work.Settles[i]; s.At.Address() == at.Address() {
			return s
		}
	}
	t.work.Settles = append(t.work.Settles, fsm.SettleAt{At: at})
	return &t.work.Settles[len(t.work.Settles)-1]
}

// rollback ends a transaction of which nothing is done. What it would have settled is
// locked and unsettled, as before.
func (c *conn) rollback(t *transaction) {
	c.condemn(t, t.doom)
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

// lapse rolls back what has taken too long, and remembers that, to say so.
func (c *conn) lapse(now time.Time) {
	for _, t := range c.transactions {
		if now.Before(t.deadline) {
			continue
		}
		c.rollback(t)
		if len(c.lapsed) >= transactionsLapsedMax {
			c.lapsed = append(c.lapsed[:0], c.lapsed[1:]...)
		}
		c.lapsed = append(c.lapsed, t.id)
	}
}

// commit has all of a transaction done, and then answers the discharge. mu is held.
func (c *conn) commit(ctx context.Context, t *transaction, a *arrival) {
	delete(c.transactions, t.id)
	c.committing++
	discharge, work := *a, t.work
	t.work = fsm.Transaction{}
	c.after = append(c.after, func() {
		c.config.Broker.Transact(work, func(code fsm.Code) {
			if code == fsm.OK {
				c.countCommitted(&work)
			}
			c.committed(ctx, t, &discharge, code)
		})
	})
}

// committed is the done function of Broker.Transact.
func (c *conn) committed(ctx context.Context, t *transaction, discharge *arrival, code fsm.Code) {
	defer c.recovered(ctx)
	c.mu.Lock()
	c.committing--
	c.transacted -= t.bytes
	if code == fsm.OK {
		for _, e := range t.taken {
			if u, ok := e.session.unsettled[e.id]; ok && u == e.unsettled {
				delete(e.session.unsettled, e.id)
				e.session.count()
				e.session.roomier()
			}
		}
	}
	c.unlock()
	c.finishSend(ctx, discharge, uncommitted(code))
}

// uncommitted is why a transaction was not committed. Its condition is empty for OK.
func uncommitted(code fsm.Code) refusal {
	v := settleVerdict(code)
	switch code { //nolint:exhaustive // what the others say is true of a transaction too
	case fsm.OK:
		return refusal{}
	case fsm.Timeout:
		return refusal{wire.ConditionTransactionTimeout, "It is not known whether the transaction was committed: all of it was done, or nothing. Find out which before you do the work again.", mayHelp}
	case fsm.NotAllowed:
		v.text = "it settles messages of entities that lie in different partitions of the cluster, or sends through an entity of another partition, or does what one of its entities does not allow. Settle the messages of one entity in a transaction, and send through that."
	case fsm.InvalidArgument:
		v.text += " Or more is sent or settled than fits into one transaction; then do less in one."
	}
	return refusal{wire.ConditionTransactionRollback, "The transaction was rolled back, and nothing of it was done: " + v.text, v.retry}
}

// firstLapse is when the first transaction of the connection lapses; false without any.
func (c *conn) firstLapse() (first time.Time, ok bool) {
	for _, t := range c.transactions {
		if !ok || t.deadline.Before(first) {
			first, ok = t.deadline, true
		}
	}
	return first, ok
}

// settleWithin takes a disposition that is part of a transaction: what it settles is
// enlisted, and the client is told the outcome that it will have. A refusal is told as a plain
// rejected: Java takes every transactional state for success.
func (s *session) settleWithin(ctx context.Context, d *wire.Disposition, last uint32, state *wire.TransactionalState) {
	c := s.conn
	taken := s.take(d.First, last)
	for _, t := range taken {
		s.unsettled[t.id] = t.unsettled // until the commit
	}
	what := decideWithin(state.Outcome)
	var id *txnID
	if known, ok := txnIDOf(state.TxnID); ok {
		id = &known
	}
	why := what.refused
	if why.condition == "" {
		why = s.enlistTaken(id, taken, what)
	}
	if why.condition != "" {
		c.doom(id, why)
		if !d.Settled {
			s.reject(c.explain(ctx, why), d.First, last)
		}
		return
	}
	for i := 0; i < len(taken) && !d.Settled; {
		first := i
		for i++; i < len(taken) && taken[i].id == taken[i-1].id+1; i++ {
		}
		end := taken[i-1].id
		s.conn.emit(s.channel, &wire.Disposition{
			Role: wire.RoleSender, First: taken[first].id, Last: &end, Settled: true,
			State: &wire.TransactionalState{TxnID: id[:], Outcome: what.outcome.state()},
		})
	}
}

// decideWithin is decide for an outcome within a transaction.
func decideWithin(outcome any) decision {
	what := decide(outcome, false)
	switch {
	case what.keep:
		what.refused = refused(wire.ConditionInvalidField, "A settlement in a transaction has no outcome. Give it one.")
	case what.refused.condition == "" && what.settlement.Verb == fsm.Release:
		what.refused = refused(wire.ConditionNotAllowed, "A message cannot be released in a transaction. Abandon it, or release it outside of one.")
	}
	return what
}

// enlistTaken enlists deliveries, which may be of several links.
func (s *session) enlistTaken(id *txnID, taken []took, what decision) refusal {
	c := s.conn
	if _, why := c.transaction(id); why.condition != "" {
		return why
	}
	if len(taken) == 0 {
		return verdictOf(fsm.MessageLockLost).refusal
	}
	for len(taken) > 0 {
		l, n := taken[0].link, 1
		for n < len(taken) && taken[n].link == l {
			n++
		}
		if l.kind != entityNode { // responses: nothing to settle at the broker
			for _, t := range taken[:n] {
				delete(s.unsettled, t.id)
			}
			taken = taken[n:]
			continue
		}
		if n > transactionOperationsMax {
			n = transactionOperationsMax + 1 // too many, and never a large slice
		}
		settlements := make([]fsm.Settlement, n)
		for i, t := range taken[:n] {
			settlements[i] = what.settlement
			settlements[i].Lock = t.lock
		}
		t, why := c.enlistSettlements(id, l.place, settlements)
		if why.condition != "" {
			return why
		}
		for _, one := range taken[:n] {
			t.taken = append(t.taken, enlisted{s, one})
		}
		taken = taken[n:]
	}
	return refusal{}
}
