package amqp

import (
	"context"
	"net/http"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// manageInTransaction handles an operation of a request that is part of a transaction. Those that settle, schedule,
// cancel and set states are enlisted. Operations that only read or lock are done at once, and operations that the state machine could
// not roll back are refused. done is false for operations that are done as they are outside of a transaction.
func (c *conn) manageInTransaction(ctx context.Context, r *request, operation string, body wire.Map) (done bool) {
	switch operation {
	case dispositionOperation:
		c.dispositionInTransaction(ctx, r, body)
		return true
	case scheduleOperation:
		c.scheduleInTransaction(ctx, r, body)
		return true
	case cancelOperation:
		c.cancelInTransaction(ctx, r, body)
		return true
	case setStateOperation:
		c.setStateInTransaction(ctx, r, body)
		return true
	case deferredOperation:
		if mode, given := integerOf(body.Get("receiver-settle-mode")); !given || mode != 0 {
			return false
		}
		operation = "receive and delete"
	case batchDeleteOperation, addRuleOperation, removeRuleOperation:
	default:
		return false
	}
	resp := badRequest("")
	resp.Cause = notInTransaction(operation)
	c.respond(ctx, r, resp)
	return true
}

// causesRollback reports whether a refused operation makes its transaction rollback-only: the operation would
// have changed something, and a retry is pointless.
func causesRollback(operation string, cause refusal.Cause) bool {
	switch operation {
	case dispositionOperation, scheduleOperation, cancelOperation, batchDeleteOperation, setStateOperation, addRuleOperation, removeRuleOperation:
		return cause.Condition != "" && cause.Retry != refusal.RetryLater
	case deferredOperation:
		return cause.Condition == wire.ConditionNotAllowed // receive-and-delete
	}
	return false
}

func notInTransaction(operation string) refusal.Cause {
	return refusal.New(wire.ConditionNotAllowed, "The operation '%s' cannot be part of a transaction. Ask for it outside of one.", operation)
}

// dispositionInTransaction is updateDisposition in a transaction.
func (c *conn) dispositionInTransaction(ctx context.Context, r *request, body wire.Map) {
	settlements, resp, ok := c.settlementsOf(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	c.mu.Lock()
	t, cause := c.transactions.Find(r.transaction)
	if cause.Condition == "" {
		cause = t.Settle(r.at, settlements)
	}
	if cause.Condition == "" {
		t.Check(ctx, r.at, locksOf(settlements), func(ctx context.Context, codes []fsm.Code) {
			resp := responseFor(refusal.Worst(codes))
			resp.Cause = t.Refused(codes, r.link.path)
			c.respond(ctx, r, resp)
		})
	}
	c.unlock()
	if cause.Condition != "" {
		c.respond(ctx, r, enlistedResponse(cause))
	}
}

// enlistedResponse returns the response to a request that was enlisted or refused.
func enlistedResponse(cause refusal.Cause) response {
	switch cause.Condition {
	case "":
		return success(nil)
	case wire.ConditionResourceLimitExceeded:
		return response{Reply: refusal.Reply{Cause: cause, Status: http.StatusForbidden}}
	case wire.ConditionMessageLockLost:
		return response{Reply: refusal.Reply{Cause: cause, Status: http.StatusGone}}
	}
	return response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}}
}

// locksOf returns the locks of settlements.
func locksOf(settlements []fsm.Settlement) []fsm.LockID {
	locks := make([]fsm.LockID, len(settlements))
	for i := range settlements {
		locks[i] = settlements[i].Lock
	}
	return locks
}

// Operations of the management node that schedule, cancel and set states of sessions in transactions. They are enlisted
// when the broker has answered a question; a discharge waits for that.

// prepare counts an operation of an open transaction that is enlisted later, or answers why it cannot be and returns nil. It
// ends with prepared.
func (c *conn) prepare(ctx context.Context, r *request) *transaction.Transaction {
	c.mu.Lock()
	t, cause := c.transactions.Find(r.transaction)
	if cause.Condition == "" {
		cause = t.Prepare()
	}
	c.unlock()
	if cause.Condition != "" {
		c.respond(ctx, r, enlistedResponse(cause))
		return nil
	}
	return t
}

// prepared enlists a prepared operation unless the broker has refused it, answers it, and then resumes a discharge.
func (c *conn) prepared(ctx context.Context, t *transaction.Transaction, r *request, refused response, enlist func() refusal.Cause, answer wire.Map) {
	c.mu.Lock()
	cause := refused.Cause
	switch {
	case cause.Condition == "":
		if cause = enlist(); cause.Condition != "" {
			refused = enlistedResponse(cause)
		}
	case cause.Retry != refusal.RetryLater:
		t.MarkRollbackOnly(cause)
	}
	c.unlock()
	if cause.Condition == "" {
		refused = success(answer)
	}
	c.respond(ctx, r, refused)
	c.mu.Lock()
	defer c.unlock()
	t.Prepared()
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
		refused.Reply = refused.WithEntity(c.urlOf(r.link.path))
		answer := make([]int64, len(messages))
		for i := range numbers {
			messages[i].Reserved, answer[i] = numbers[i], int64(numbers[i])
		}
		c.prepared(ctx, t, r, refused, func() refusal.Cause { return t.Send(r.at, nil, messages) },
			wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: answer}}})
	}
	if len(messages) > transaction.SendsMax { // too many: enlisting refuses them
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
	t, cause := c.transactions.Find(r.transaction)
	if cause.Condition == "" {
		cause = t.Cancel(r.at, numbers)
	}
	c.unlock()
	c.respond(ctx, r, enlistedResponse(cause))
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
		c.prepared(ctx, t, r, refused, func() refusal.Cause { return t.SetState(r.at, held.StateChange(state)) }, nil)
	}()
}
