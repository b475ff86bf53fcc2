package amqp

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Operations of the management node that schedule, cancel and set states of sessions in transactions. They are enlisted
// when the broker has answered a question; a discharge waits for that, see isPending.

// prepare counts an operation of an open transaction that is enlisted later, or answers why it cannot be and returns nil. It
// ends with prepared.
func (c *conn) prepare(ctx context.Context, r *request) *transaction {
	c.mu.Lock()
	t, cause := c.transactions.find(r.transaction)
	if cause.Condition == "" && t.rollbackReason.Condition != "" {
		cause = t.rollbackOnlyRefusal()
	}
	if cause.Condition == "" {
		t.preparing++
	}
	c.unlock()
	if cause.Condition != "" {
		c.respond(ctx, r, enlistedResponse(cause))
		return nil
	}
	return t
}

// prepared enlists a prepared operation unless the broker has refused it, answers it, and then resumes a discharge.
func (c *conn) prepared(ctx context.Context, t *transaction, r *request, refused response, enlist func() refusal.Cause, answer wire.Map) {
	c.mu.Lock()
	cause := refused.Cause
	switch {
	case cause.Condition == "":
		if cause = enlist(); cause.Condition != "" {
			refused = enlistedResponse(cause)
		}
	case cause.Retry != refusal.RetryLater:
		c.transactions.markRollbackOnly(t, cause)
	}
	c.unlock()
	if cause.Condition == "" {
		refused = success(answer)
	}
	c.respond(ctx, r, refused)
	c.mu.Lock()
	defer c.unlock()
	t.preparing--
	t.resumeDischarge()
}

// scheduleInTransaction is scheduleMessage in a transaction. The numbers are reserved at the broker, so they are those
// that the messages have after the commit; a rollback leaves a gap.
func (c *conn) scheduleInTransaction(ctx context.Context, r *request, body wire.Map) {
	messages, resp, ok := c.scheduledMessages(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	t := c.prepare(ctx, r)
	if t == nil {
		return
	}
	reserved := func(code fsm.Code, numbers []fsm.SequenceNumber) {
		defer c.recovered(ctx)
		refused := responseFor(code)
		refused.Reply = refused.WithEntity(r.link.path)
		answer := make([]int64, len(messages))
		for i := range numbers {
			messages[i].Reserved, answer[i] = numbers[i], int64(numbers[i])
		}
		c.prepared(ctx, t, r, refused, func() refusal.Cause { return c.enlistSendsIn(t, r.at, nil, messages) },
			wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: answer}}})
	}
	if len(messages) > transactionSendsMax { // too many: enlisting refuses them
		reserved(fsm.OK, nil)
		return
	}
	c.config.Broker.Reserve(r.at, messages, reserved)
}

// cancelInTransaction is cancelScheduled in a transaction.
func (c *conn) cancelInTransaction(ctx context.Context, r *request, body wire.Map) {
	numbers, resp, ok := sequenceNumbers(body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	c.mu.Lock()
	t, cause := c.transactions.find(r.transaction)
	if cause.Condition == "" {
		cause = c.enlistCancellation(t, r.at, t.withdraw(r.at.ID, numbers))
	}
	c.unlock()
	c.respond(ctx, r, enlistedResponse(cause))
}

// withdraw removes messages that the transaction itself schedules at an entity, and returns the other numbers. mu is held.
func (t *transaction) withdraw(at fsm.EntityID, numbers []fsm.SequenceNumber) (others []fsm.SequenceNumber) {
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

// enlistCancellation adds the cancellation of scheduled messages. mu is held.
func (c *conn) enlistCancellation(t *transaction, at fsm.EntityRef, numbers []fsm.SequenceNumber) refusal.Cause {
	if cause := c.transactions.enlist(t, 0, len(numbers), 0); cause.Condition != "" || len(numbers) == 0 {
		return cause
	}
	for _, n := range numbers {
		if cause := t.settleIn(at, n.Shard()); cause.Condition != "" {
			c.transactions.markRollbackOnly(t, cause)
			return cause
		}
	}
	t.work.Cancels = append(t.work.Cancels, fsm.CancelAt{At: at, Sequences: numbers})
	return refusal.Cause{}
}

// setStateInTransaction is setSessionState in a transaction.
func (c *conn) setStateInTransaction(ctx context.Context, r *request, body wire.Map) {
	held, state, resp, ok := c.stateToSet(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	t := c.prepare(ctx, r)
	if t == nil {
		return
	}
	go func() {
		defer c.recovered(ctx)
		ctx, cancel := context.WithTimeout(ctx, sessionWithin)
		defer cancel()
		refused := response{}
		_, err := held.Held(ctx) // of other failures the commit decides
		if code := refusal.CodeOf(err); err != nil && (code == fsm.SessionLockLost || code == fsm.EntityNotFound) {
			refused = responseFor(code)
		}
		c.prepared(ctx, t, r, refused, func() refusal.Cause { return c.enlistState(t, r.at, held.StateChange(state)) }, nil)
	}()
}

// enlistState adds the state of a session, instead of one that the transaction would set before. mu is held.
func (c *conn) enlistState(t *transaction, at fsm.EntityRef, state fsm.StateAt) refusal.Cause {
	again := slices.IndexFunc(t.work.States, func(s fsm.StateAt) bool { return s.State.Lock == state.State.Lock })
	count := 1
	if again >= 0 {
		count = 0
	}
	if cause := c.transactions.enlist(t, 0, count, len(state.State.State)); cause.Condition != "" {
		return cause
	}
	if t.home != nil && t.home.ID != at.ID {
		cause := t.settleIn(at, 0)
		c.transactions.markRollbackOnly(t, cause)
		return cause
	}
	if again >= 0 {
		t.work.States[again] = state
	} else {
		t.work.States = append(t.work.States, state)
	}
	return refusal.Cause{}
}
