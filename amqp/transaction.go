package amqp

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
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

	work        fsm.Transaction
	deliveries  []enlistedDelivery      // the deliveries that the settlements in work settle
	enlisted    map[deliveryKey]int     // index in deliveries
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

	unchecked []operationCheck // operations about which the broker was not asked yet
	checking  bool             // a question is with the broker, or the next one is due
	preparing int              // operations that are enlisted when the broker has answered
	resume    func()           // ends the transaction when all operations are answered; nil: no discharge waits. mu is held
	ended     bool             // rolled back: nothing can be enlisted
}

// enlistedDelivery is one delivery that a transaction settles. It remains in the unsettled map of its session
// until the commit, so that the client can settle it again after a rollback.
type enlistedDelivery struct {
	session *session
	settledDelivery
	outcome       outcome
	clientSettled bool // the client has settled it: it gets no answer at the commit
}

// deliveryKey identifies a delivery of a connection.
type deliveryKey struct {
	session *session
	id      uint32
}

// forget removes a delivery from the unsettled ones of its session, and reports whether it was among them.
func (e *enlistedDelivery) forget() bool {
	s := e.session
	if u, ok := s.unsettled[e.id]; !ok || u != e.unsettled {
		return false
	}
	delete(s.unsettled, e.id)
	s.countUnsettled()
	s.unsettledFreed()
	return true
}

func unknownTransaction() refusal.Cause {
	return refusal.AfterChange(wire.ConditionTransactionUnknownID, "The connection has no such open transaction: it was discharged, or was rolled back with its coordinator link, or is of another connection. Declare another one, and do all of the work again.")
}

// rollbackOnlyRefusal returns the answer to further operations in a transaction that is rollback-only.
func (t *transaction) rollbackOnlyRefusal() refusal.Cause {
	return refusal.AfterChange(wire.ConditionTransactionRollback, "An operation of the transaction was refused, so nothing of it is done: %s Roll the transaction back, and do all of the work again in another one.", t.rollbackReason.Text)
}

// enlistSends adds messages for the entity of a link. The transaction is nil only if there is none.
func (c *conn) enlistSends(id *txnID, at fsm.EntityRef, via *fsm.EntityRef, messages []fsm.Message) (*transaction, refusal.Cause) {
	t, cause := c.transactions.find(id)
	if cause.Condition == "" {
		cause = c.enlistSendsIn(t, at, via, messages)
	}
	return t, cause
}

// enlistSendsIn is enlistSends for a transaction that may wait for its discharge.
func (c *conn) enlistSendsIn(t *transaction, at fsm.EntityRef, via *fsm.EntityRef, messages []fsm.Message) refusal.Cause {
	bytes := 0
	for i := range messages {
		bytes += len(messages[i].Payload) + len(messages[i].Properties)
	}
	if cause := c.transactions.enlist(t, len(messages), 0, bytes); cause.Condition != "" {
		return cause
	}
	if cause := t.secondPartition(&at, messages); cause.Condition != "" {
		c.transactions.markRollbackOnly(t, cause)
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

// enlistSettlements adds settlements at an entity. A lock can be settled once.
func (c *conn) enlistSettlements(id *txnID, at fsm.EntityRef, settlements []fsm.Settlement) (*transaction, refusal.Cause) {
	bytes := 0
	for i := range settlements {
		s := &settlements[i]
		bytes += len(s.Properties) + len(s.Reason) + len(s.Description)
	}
	t, cause := c.transactions.find(id)
	if cause.Condition == "" {
		cause = c.transactions.enlist(t, 0, len(settlements), bytes)
	}
	if cause.Condition != "" {
		return nil, cause
	}
	if cause = t.addSettlements(at, settlements); cause.Condition != "" {
		c.transactions.markRollbackOnly(t, cause)
		return nil, cause
	}
	return t, refusal.Cause{}
}

// addSettlements adds settlements, of which there is at least one, to the work of a transaction, or returns the reason
// why they cannot be part of it. It settles messages of one entity, and of one partition of that.
func (t *transaction) addSettlements(at fsm.EntityRef, settlements []fsm.Settlement) refusal.Cause {
	if cause := t.settleIn(at, settlements[0].Lock.Sequence.Shard()); cause.Condition != "" {
		return cause
	}
	if t.locks == nil {
		t.locks = make(map[fsm.LockID]struct{}, len(settlements))
	}
	for i := range settlements {
		lock := settlements[i].Lock
		if _, twice := t.locks[lock]; twice {
			return refusal.New(wire.ConditionMessageLockLost, "The message is settled in this transaction already. Settle each message once.")
		}
		if cause := t.settleIn(at, lock.Sequence.Shard()); cause.Condition != "" {
			return cause
		}
		t.locks[lock] = struct{}{}
	}
	g := t.settlementsAt(at)
	g.Settlements = append(g.Settlements, settlements...)
	return refusal.Cause{}
}

// settleIn records the entity and the shard in which the transaction settles and cancels, or returns the reason why it
// cannot be this one.
func (t *transaction) settleIn(at fsm.EntityRef, shard int) refusal.Cause {
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
func (t *transaction) secondPartition(at *fsm.EntityRef, messages []fsm.Message) refusal.Cause {
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
func (t *transaction) settlementsAt(at fsm.EntityRef) *fsm.SettleAt {
	for i := range t.work.Settles {
		if s := &t.work.Settles[i]; s.At.Address() == at.Address() {
			return s
		}
	}
	t.work.Settles = append(t.work.Settles, fsm.SettleAt{At: at})
	return &t.work.Settles[len(t.work.Settles)-1]
}

// commit performs a whole transaction, and then answers the discharge. mu is held.
func (c *conn) commit(ctx context.Context, t *transaction, a *incomingDelivery) {
	c.transactions.beginCommit(t)
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
	c.transactions.endCommit(t)
	if code == fsm.OK {
		t.settleDeliveries()
	}
	c.unlock()
	c.finishSend(ctx, discharge, commitRefusal(code))
}

// settleDeliveries settles the deliveries of a transaction that was committed, before its discharge is
// answered, each run of neighbours with one disposition. The state is again that of the transaction: Java takes
// a plain outcome for another one than it asked for. mu is held.
func (t *transaction) settleDeliveries() {
	var first, last *enlistedDelivery // of the run that is not answered yet
	for i := range t.deliveries {
		e := &t.deliveries[i]
		s := e.session
		switch {
		case !e.forget() || e.clientSettled || s.ended:
			continue
		case first == nil:
			first = e
		case first.session != s || first.outcome != e.outcome || last.id+1 != e.id || e.id == 0:
			first.session.answerInTransaction(t.id, first.id, last.id, first.outcome, true)
			first = e
		}
		last = e
	}
	if first != nil {
		first.session.answerInTransaction(t.id, first.id, last.id, first.outcome, true)
	}
}

// answerInTransaction reports the outcome that deliveries with consecutive ids have in a transaction. settled means
// that it is committed.
func (s *session) answerInTransaction(id txnID, first, last uint32, outcome outcome, settled bool) {
	s.conn.emitDisposition(s.channel, &wire.Disposition{
		Role: wire.RoleSender, First: first, Last: &last, Settled: settled,
		State: &wire.TransactionalState{TxnID: id[:], Outcome: outcome.state()},
	})
}

// settledByClient records that the client has settled deliveries of a session that are enlisted. These stay unsettled
// until the commit; others are those of taken that are not enlisted. Java settles each delivery once more when it
// knows its outcome. It costs the width of the range or the number of enlisted deliveries, whichever is less.
func (t *transaction) settledByClient(s *session, first, last uint32, taken []settledDelivery) (others []settledDelivery, some bool) {
	if width := uint64(last-first) + 1; width <= uint64(len(t.deliveries)) {
		for id := first; id-first < uint32(width); id++ {
			if i, ok := t.enlisted[deliveryKey{s, id}]; ok {
				t.deliveries[i].clientSettled, some = true, true
			}
		}
	} else {
		for i := range t.deliveries {
			if e := &t.deliveries[i]; e.session == s && e.id-first <= last-first {
				e.clientSettled, some = true, true
			}
		}
	}
	if !some {
		return taken, false
	}
	for _, d := range taken {
		if _, ok := t.enlisted[deliveryKey{s, d.id}]; ok {
			s.unsettled[d.id] = d.unsettled
		} else {
			others = append(others, d)
		}
	}
	return others, true
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

// settleInTransaction handles a disposition that is part of a transaction: its settlements are enlisted and
// checked, and the client gets the outcome that they will have. The answer settles nothing: the commit does, and after a
// rollback the client can settle the deliveries again (part 4, 4.4.3). A refusal is answered with a plain
// rejected, because Java considers every transactional state a success.
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
	if t, gone := c.transactions.find(id); d.Settled && gone.Condition == "" {
		var again bool
		if taken, again = t.settledByClient(s, d.First, last, taken); again && len(taken) == 0 {
			return
		}
	}
	cause := what.refused
	if cause.Condition == "" {
		cause = s.enlistDeliveries(id, taken, what, d.Settled)
	}
	if cause.Condition != "" {
		c.transactions.markRollbackOnlyByID(id, cause)
		if !d.Settled {
			s.refuseInTransaction(c.newError(ctx, cause), d.First, last, len(taken) > 0)
		}
		return
	}
	s.checkDeliveries(ctx, c.transactions.open[*id], taken, what.outcome, d.Settled)
}

// refuseInTransaction answers a refused disposition. Deliveries that are known stay open at the client, which
// can settle them after the rollback.
func (s *session) refuseInTransaction(e *wire.Error, first, last uint32, known bool) {
	s.conn.emitDisposition(s.channel, &wire.Disposition{Role: wire.RoleSender, First: first, Last: &last, Settled: !known, State: &wire.Rejected{Error: e}})
}

// decideInTransaction is decide for an outcome within a transaction.
func decideInTransaction(outcome any) decision {
	what := decide(outcome, false)
	switch {
	case what.notTerminal:
		what.refused = refusal.New(wire.ConditionInvalidField, "A settlement in a transaction has no outcome. Give it one.")
	case what.refused.Condition == "" && what.settlement.Verb == fsm.Release:
		what.refused = refusal.New(wire.ConditionNotAllowed, "A message cannot be released in a transaction. Abandon it, or release it outside of one.")
	}
	return what
}

// enlistDeliveries enlists deliveries, which may belong to several links.
func (s *session) enlistDeliveries(id *txnID, taken []settledDelivery, what decision, settled bool) refusal.Cause {
	c := s.conn
	if _, cause := c.transactions.find(id); cause.Condition != "" {
		return cause
	}
	if len(taken) == 0 {
		return refusal.ReplyOf(fsm.MessageLockLost).Cause
	}
	for len(taken) > 0 {
		l, n := taken[0].link, 1
		for n < len(taken) && taken[n].link == l {
			n++
		}
		if l.sessionLost {
			return refusal.ReplyOf(fsm.SessionLockLost).Cause
		}
		if l.kind != entityNode { // responses: the broker has nothing to settle
			for _, t := range taken[:n] {
				delete(s.unsettled, t.id)
			}
			taken = taken[n:]
			continue
		}
		if n > transactionSettlementsMax {
			n = transactionSettlementsMax + 1 // too many, without ever allocating a large slice
		}
		settlements := make([]fsm.Settlement, n)
		for i, t := range taken[:n] {
			settlements[i] = what.settlement
			settlements[i].Lock = t.lock
		}
		t, cause := c.enlistSettlements(id, l.entity, settlements)
		if cause.Condition != "" {
			return cause
		}
		if t.enlisted == nil {
			t.enlisted = make(map[deliveryKey]int, n)
		}
		for _, one := range taken[:n] {
			t.enlisted[deliveryKey{s, one.id}] = len(t.deliveries)
			t.deliveries = append(t.deliveries, enlistedDelivery{session: s, settledDelivery: one, outcome: what.outcome, clientSettled: settled})
		}
		taken = taken[n:]
	}
	return refusal.Cause{}
}
