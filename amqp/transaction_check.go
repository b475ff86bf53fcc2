package amqp

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// An operation of a transaction is enlisted at once, and answered when the broker has said whether it can succeed: a
// lock that has ended, and an entity that does not exist, are refused when the operation comes, not at the commit.
// A transaction has one question to the broker at a time. Operations that come meanwhile share the next one, so a
// client that does not wait for answers pays no round trip for each. The commit decides: it performs a transaction
// whose questions nobody answered, and refuses one whose lock has ended since the answer.

// operationCheck is an enlisted operation that is not answered yet.
type operationCheck struct {
	at    fsm.EntityRef
	locks []fsm.LockID                                // those that it ends; none: it sends to the entity
	done  func(ctx context.Context, codes []fsm.Code) // gets one code per lock, or one. mu is not held
}

// check asks the broker about an enlisted operation. mu is held.
func (c *conn) check(ctx context.Context, t *transaction, o operationCheck) {
	t.unchecked = append(t.unchecked, o)
	if !t.checking {
		t.checking = true
		c.brokerCalls = append(c.brokerCalls, func() { c.checkNext(ctx, t) })
	}
}

// checkNext asks about the operations of the first entity that wait, or ends the check. mu is not held.
func (c *conn) checkNext(ctx context.Context, t *transaction) {
	c.mu.Lock()
	defer c.unlock()
	if len(t.unchecked) == 0 {
		t.checking = false
		t.resumeDischarge()
		return
	}
	first := t.unchecked[0]
	same := func(o operationCheck) bool {
		return o.at.Address() == first.at.Address() && (len(o.locks) == 0) == (len(first.locks) == 0)
	}
	var asked []operationCheck
	var locks []fsm.LockID
	for _, o := range t.unchecked {
		if same(o) {
			asked, locks = append(asked, o), append(locks, o.locks...)
		}
	}
	t.unchecked = slices.DeleteFunc(t.unchecked, same)
	c.brokerCalls = append(c.brokerCalls, func() {
		c.config.Broker.Check(first.at, locks, func(codes []fsm.Code) { c.checked(ctx, t, asked, codes) })
	})
}

// isPending reports whether operations of the transaction are not answered yet.
func (t *transaction) isPending() bool { return t.checking || t.preparing > 0 }

// resumeDischarge ends the transaction if its discharge waits for nothing else. mu is held.
func (t *transaction) resumeDischarge() {
	if resume := t.resume; resume != nil && !t.isPending() {
		t.resume = nil
		resume()
	}
}

// checked is the done function of Broker.Check.
func (c *conn) checked(ctx context.Context, t *transaction, asked []operationCheck, codes []fsm.Code) {
	defer c.recovered(ctx)
	for _, o := range asked {
		mine := codes
		if n := len(o.locks); n > 0 {
			mine, codes = codes[:n], codes[n:]
		}
		o.done(ctx, mine)
	}
	c.checkNext(ctx, t)
}

// checkDeliveries asks about enlisted deliveries, which may belong to several links, and answers them. mu is held.
func (s *session) checkDeliveries(ctx context.Context, t *transaction, taken []settledDelivery, outcome outcome, clientSettled bool) {
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
		o := operationCheck{at: l.entity, locks: make([]fsm.LockID, n)}
		for i := range mine {
			o.locks[i] = mine[i].lock
		}
		o.done = func(ctx context.Context, codes []fsm.Code) {
			s.conn.mu.Lock()
			defer s.conn.unlock()
			s.answerChecked(ctx, t, mine, outcome, clientSettled, codes)
		}
		s.conn.check(ctx, t, o)
	}
}

// refuseChecked returns the reason why an operation is refused, and makes its transaction rollback-only. mu is not held.
func (c *conn) refuseChecked(t *transaction, codes []fsm.Code, path string) refusal.Cause {
	cause := refusal.SettleReplyOf(refusal.Worst(codes)).WithEntity(path).Cause
	if cause.Condition != "" {
		c.mu.Lock()
		defer c.unlock()
		c.transactions.markRollbackOnly(t, cause)
	}
	return cause
}

// locksOf returns the locks of settlements.
func locksOf(settlements []fsm.Settlement) []fsm.LockID {
	locks := make([]fsm.LockID, len(settlements))
	for i := range settlements {
		locks[i] = settlements[i].Lock
	}
	return locks
}

// answerChecked answers the enlisted settlements of one address when the broker has said which of their locks are held.
// If one is not, the transaction can only be rolled back; the other deliveries stay open at the client. mu is held.
func (s *session) answerChecked(ctx context.Context, t *transaction, taken []settledDelivery, outcome outcome, clientSettled bool, codes []fsm.Code) {
	c := s.conn
	cause := refusal.SettleReplyOf(refusal.Worst(codes)).WithEntity(taken[0].link.path).Cause
	if cause.Condition != "" {
		c.transactions.markRollbackOnly(t, cause)
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
			s.answerInTransaction(t.id, taken[first].id, last, outcome, false)
		default:
			s.conn.emitDisposition(s.channel, &wire.Disposition{
				Role: wire.RoleSender, First: taken[first].id, Last: &last, Settled: lost,
				State: &wire.Rejected{Error: c.newError(ctx, cause, "path", taken[first].link.path)},
			})
		}
	}
	s.unsettledFreed()
}
