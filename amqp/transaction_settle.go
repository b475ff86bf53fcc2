package amqp

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// enlisted is the deliveries that one transaction settles. The mutex of their connection guards it.
type enlisted struct {
	id   transaction.ID
	list []enlistedOutcome
}

// enlistedOutcome is what a transaction does with a delivery.
type enlistedOutcome struct {
	*enlistedDelivery
	outcome outcome
}

// enlistedDelivery is a delivery that open transactions settle. It remains in the unsettled map of its session until one
// of them is committed, so that the client can settle it again after a rollback.
type enlistedDelivery struct {
	session *session
	settledDelivery
	by            []*enlisted // the transactions that settle it
	clientSettled bool        // the client has settled it: it gets no answer
	later         *decision   // what the client wants outside of the transactions; nil: nothing
}

// deliveryKey identifies a delivery of a connection.
type deliveryKey struct {
	session *session
	id      uint32
}

// enlistedOf returns the deliveries that a transaction settles; nil for none.
func enlistedOf(t *transaction.Transaction) *enlisted {
	e, _ := t.Deliveries().(*enlisted)
	return e
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

// leave records that a transaction which settles the delivery has ended, and reports whether it was the last one.
func (e *enlistedDelivery) leave(all *enlisted) (last bool) {
	e.by = slices.DeleteFunc(e.by, func(one *enlisted) bool { return one == all })
	if len(e.by) > 0 {
		return false
	}
	delete(e.session.conn.enlisted, deliveryKey{e.session, e.id})
	e.link.enlisted--
	return true
}

// settleLater does what the client wanted outside of the transactions, all of which were rolled back.
func (e *enlistedDelivery) settleLater() {
	answered := e.forget() && !e.clientSettled && !e.session.ended && e.link.state == attached
	e.session.settleOfLink(context.Background(), []settledDelivery{e.settledDelivery}, *e.later, !answered)
}

// RolledBack settles the deliveries that the client has settled outside of the transaction too. It forgets those that the
// client has settled in it: the client cannot settle them again over their link.
func (all *enlisted) RolledBack() {
	for i := range all.list {
		switch e := all.list[i].enlistedDelivery; {
		case !e.leave(all):
		case e.later != nil:
			e.settleLater()
		case e.clientSettled:
			e.forget()
		}
	}
	all.releaseSessions()
}

// releaseSessions releases the message sessions whose links have ended before the transaction.
func (all *enlisted) releaseSessions() {
	for i := range all.list {
		if l := all.list[i].link; l.sessionKept && l.enlisted == 0 {
			l.lossTimer.Stop()
			l.closeReceiver()
		}
	}
}

// Committed settles the deliveries of a transaction that was committed, before its discharge is
// answered, each run of neighbours with one disposition. The state is again that of the transaction: Java takes
// a plain outcome for another one than it asked for.
func (all *enlisted) Committed() {
	var first, last *enlistedOutcome // of the run that is not answered yet
	for i := range all.list {
		e := &all.list[i]
		e.leave(all)
		e.later = nil
		s := e.session
		switch {
		case !e.forget() || e.clientSettled || s.ended:
			continue
		case first == nil:
			first = e
		case first.session != s || first.outcome != e.outcome || last.id+1 != e.id || e.id == 0:
			first.session.answerInTransaction(all.id, first.id, last.id, first.outcome, true)
			first = e
		}
		last = e
	}
	if first != nil {
		first.session.answerInTransaction(all.id, first.id, last.id, first.outcome, true)
	}
	all.releaseSessions()
}

// settledByClient records that the client has settled deliveries of a session that are enlisted; a nil receiver has
// none. These stay unsettled until the commit; others are those of taken that are not enlisted. Java settles each delivery once more when it
// knows its outcome. It costs the width of the range or the number of enlisted deliveries, whichever is less.
func (all *enlisted) settledByClient(s *session, first, last uint32, taken []settledDelivery) (others []settledDelivery, some bool) {
	if all == nil {
		return taken, false
	}
	if width := uint64(last-first) + 1; width <= uint64(len(all.list)) {
		for id := first; id-first < uint32(width); id++ {
			if e := s.conn.enlisted[deliveryKey{s, id}]; all.has(e) {
				e.clientSettled, some = true, true
			}
		}
	} else {
		for i := range all.list {
			if e := &all.list[i]; e.session == s && e.id-first <= last-first {
				e.clientSettled, some = true, true
			}
		}
	}
	if !some {
		return taken, false
	}
	for _, d := range taken {
		if all.has(s.conn.enlisted[deliveryKey{s, d.id}]) {
			s.unsettled[d.id] = d.unsettled
		} else {
			others = append(others, d)
		}
	}
	return others, true
}

// has reports whether the transaction settles a delivery, which may be nil.
func (all *enlisted) has(e *enlistedDelivery) bool { return e != nil && slices.Contains(e.by, all) }

// add adds a delivery that the transaction settles.
func (all *enlisted) add(s *session, d settledDelivery, outcome outcome, clientSettled bool) {
	key := deliveryKey{s, d.id}
	e := s.conn.enlisted[key]
	if e == nil {
		e = &enlistedDelivery{session: s, settledDelivery: d}
		s.conn.enlisted[key] = e
		d.link.enlisted++
	}
	e.by = append(e.by, all)
	e.clientSettled = e.clientSettled || clientSettled
	all.list = append(all.list, enlistedOutcome{e, outcome})
}

// keepEnlisted puts back deliveries that transactions settle, open ones and those that are being committed, and
// returns the others. What the client wants for them now is done if the transactions are rolled back. A disposition that
// only settles says that the client has forgotten them, not that they are released.
func (s *session) keepEnlisted(taken []settledDelivery, what decision, d *wire.Disposition) (others []settledDelivery) {
	if len(s.conn.enlisted) == 0 {
		return taken
	}
	for _, one := range taken {
		e := s.conn.enlisted[deliveryKey{s, one.id}]
		if e == nil {
			others = append(others, one)
			continue
		}
		if d.State != nil {
			later := what // a copy, so that what is not allocated for each disposition
			e.later = &later
		}
		e.clientSettled = e.clientSettled || d.Settled
		s.unsettled[one.id] = one.unsettled
	}
	return others
}

// answerInTransaction reports the outcome that deliveries with consecutive ids have in a transaction. settled means
// that it is committed.
func (s *session) answerInTransaction(id transaction.ID, first, last uint32, outcome outcome, settled bool) {
	s.conn.emitDisposition(s.channel, &wire.Disposition{
		Role: wire.RoleSender, First: first, Last: &last, Settled: settled,
		State: &wire.TransactionalState{TxnID: id[:], Outcome: outcome.state()},
	})
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
	id := transaction.IDOf(state.TxnID)
	if t, gone := c.transactions.Find(id); d.Settled && gone.Condition == "" {
		var again bool
		if taken, again = enlistedOf(t).settledByClient(s, d.First, last, taken); again && len(taken) == 0 {
			return
		}
	}
	var t *transaction.Transaction
	cause := what.refused
	if cause.Condition == "" {
		t, cause = s.enlistDeliveries(id, taken, what, d.Settled)
	}
	if cause.Condition != "" {
		c.transactions.MarkRollbackOnly(id, cause)
		if !d.Settled {
			s.refuseInTransaction(c.newError(ctx, cause), d.First, last, len(taken) > 0)
		}
		return
	}
	s.checkDeliveries(ctx, t, taken, what.outcome, d.Settled)
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
func (s *session) enlistDeliveries(id *transaction.ID, taken []settledDelivery, what decision, settled bool) (t *transaction.Transaction, cause refusal.Cause) {
	if t, cause = s.conn.transactions.Find(id); cause.Condition != "" {
		return nil, cause
	}
	if len(taken) == 0 {
		return nil, refusal.ReplyOf(fsm.MessageLockLost).Cause
	}
	for len(taken) > 0 {
		l, n := taken[0].link, 1
		for n < len(taken) && taken[n].link == l {
			n++
		}
		if l.sessionLost {
			return nil, refusal.ReplyOf(fsm.SessionLockLost).Cause
		}
		if l.kind != entityNode { // responses: the broker has nothing to settle
			for _, one := range taken[:n] {
				delete(s.unsettled, one.id)
			}
			taken = taken[n:]
			continue
		}
		if n > transaction.SettlementsMax {
			n = transaction.SettlementsMax + 1 // too many, without ever allocating a large slice
		}
		settlements := make([]fsm.Settlement, n)
		for i := range settlements {
			settlements[i] = what.settlement
			settlements[i].Lock = taken[i].lock
		}
		if cause = t.Settle(l.entity, settlements); cause.Condition != "" {
			return nil, cause
		}
		all := enlistedOf(t)
		if all == nil {
			all = &enlisted{id: *id}
			t.SettleOn(all)
		}
		for _, one := range taken[:n] {
			all.add(s, one, what.outcome, settled)
		}
		taken = taken[n:]
	}
	return t, refusal.Cause{}
}

// checkDeliveries asks about enlisted deliveries, which may belong to several links, and answers them. mu is held.
func (s *session) checkDeliveries(ctx context.Context, t *transaction.Transaction, taken []settledDelivery, outcome outcome, clientSettled bool) {
	for len(taken) > 0 {
		l, n := taken[0].link, 1
		for n < len(taken) && taken[n].link.kind == l.kind && taken[n].link.entity.Address() == l.entity.Address() {
			n++
		}
		mine := taken[:n]
		taken = taken[n:]
		if l.kind != entityNode { // responses: the broker has nothing to settle
			s.answerChecked(ctx, t, mine, outcome, clientSettled, make([]fsm.Code, n))
			continue
		}
		locks := make([]fsm.LockID, n)
		for i := range mine {
			locks[i] = mine[i].lock
		}
		t.Check(ctx, l.entity, locks, func(ctx context.Context, codes []fsm.Code) {
			s.conn.mu.Lock()
			defer s.conn.unlock()
			s.answerChecked(ctx, t, mine, outcome, clientSettled, codes)
		})
	}
}

// answerChecked answers the enlisted settlements of one address when the broker has said which of their locks are held.
// If one is not, the transaction can only be rolled back; the other deliveries stay open at the client. mu is held.
func (s *session) answerChecked(ctx context.Context, t *transaction.Transaction, taken []settledDelivery, outcome outcome, clientSettled bool, codes []fsm.Code) {
	c := s.conn
	cause := refusal.SettleReplyOf(refusal.Worst(codes)).WithEntity(c.urlOf(taken[0].link.path)).Cause
	if cause.Condition != "" {
		t.MarkRollbackOnly(cause)
	}
	if s.ended {
		return
	}
	defer s.countUnsettled()
	for i := 0; i < len(taken); {
		first := i
		for i++; i < len(taken) && taken[i].id == taken[i-1].id+1 && codes[i] == codes[first]; i++ {
		}
		lost := codes[first] != fsm.OK
		for _, d := range taken[first:i] {
			if u, ok := s.unsettled[d.id]; lost && ok && u == d.unsettled {
				delete(s.unsettled, d.id)
			}
		}
		switch last := taken[i-1].id; {
		case clientSettled:
		case cause.Condition == "":
			s.answerInTransaction(t.ID(), taken[first].id, last, outcome, false)
		default:
			s.conn.emitDisposition(s.channel, &wire.Disposition{
				Role: wire.RoleSender, First: taken[first].id, Last: &last, Settled: lost,
				State: &wire.Rejected{Error: c.newError(ctx, cause, "path", taken[first].link.path)},
			})
		}
	}
	s.unsettledFreed()
}
