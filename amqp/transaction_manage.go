package amqp

import (
	"context"
	"net/http"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// manageInTransaction handles an operation of a request that is part of a transaction. Those that settle, schedule,
// cancel and set states are enlisted. Operations that only read or lock are done at once, and operations that the state machine could
// not roll back are refused. done is false for operations that are done as they are outside of a transaction.
func (m *manager) manageInTransaction(ctx context.Context, r *managed, operation string, body wire.Map) (done bool) {
	switch operation {
	case dispositionOperation:
		m.dispositionInTransaction(ctx, r, body)
		return true
	case scheduleOperation:
		m.scheduleInTransaction(ctx, r, body)
		return true
	case cancelOperation:
		m.cancelInTransaction(ctx, r, body)
		return true
	case setStateOperation:
		m.setStateInTransaction(ctx, r, body)
		return true
	case deferredOperation:
		if mode, given := message.IntegerOf(body.Get("receiver-settle-mode")); !given || mode != 0 {
			return false
		}
		operation = "receive and delete"
	case batchDeleteOperation, addRuleOperation, removeRuleOperation:
	default:
		return false
	}
	resp := badRequest("")
	resp.Cause = notInTransaction(operation)
	r.respond(ctx, resp)
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
func (m *manager) dispositionInTransaction(ctx context.Context, r *managed, body wire.Map) {
	settlements, resp, ok := m.settlementsOf(r, body)
	if !ok {
		r.respond(ctx, resp)
		return
	}
	m.conn.Lock()
	t, cause := m.transactions.Find(r.transaction)
	if cause.Condition == "" {
		cause = t.Settle(r.at, settlements)
	}
	if cause.Condition == "" {
		t.Check(ctx, r.at, locksOf(settlements), func(ctx context.Context, codes []fsm.Code) {
			resp := responseFor(refusal.Worst(codes))
			resp.Cause = t.Refused(codes, r.path)
			r.respond(ctx, resp)
		})
	}
	m.conn.Unlock()
	if cause.Condition != "" {
		r.respond(ctx, enlistedResponse(cause))
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
func (m *manager) prepare(ctx context.Context, r *managed) *transaction.Transaction {
	m.conn.Lock()
	t, cause := m.transactions.Find(r.transaction)
	if cause.Condition == "" {
		cause = t.Prepare()
	}
	m.conn.Unlock()
	if cause.Condition != "" {
		r.respond(ctx, enlistedResponse(cause))
		return nil
	}
	return t
}

// prepared enlists a prepared operation unless the broker has refused it, answers it, and then resumes a discharge.
func (m *manager) prepared(ctx context.Context, t *transaction.Transaction, r *managed, refused response, enlist func() refusal.Cause, answer wire.Map) {
	m.conn.Lock()
	cause := refused.Cause
	switch {
	case cause.Condition == "":
		if cause = enlist(); cause.Condition != "" {
			refused = enlistedResponse(cause)
		}
	case cause.Retry != refusal.RetryLater:
		t.MarkRollbackOnly(cause)
	}
	m.conn.Unlock()
	if cause.Condition == "" {
		refused = success(answer)
	}
	r.respond(ctx, refused)
	m.conn.Lock()
	defer m.conn.Unlock()
	t.Prepared()
}

// scheduleInTransaction is scheduleMessage in a transaction. The numbers are reserved at the broker, so they are those
// that the messages have after the commit; a rollback leaves a gap.
func (m *manager) scheduleInTransaction(ctx context.Context, r *managed, body wire.Map) {
	messages, resp, ok := m.scheduledMessages(r, body)
	if !ok {
		r.respond(ctx, resp)
		return
	}
	t := m.prepare(ctx, r)
	if t == nil {
		return
	}
	reserved := func(code fsm.Code, numbers []fsm.SequenceNumber) {
		defer m.conn.Recovered(ctx)
		refused := responseFor(code)
		refused.Reply = refused.WithEntity(r.nodeURL)
		answer := make([]int64, len(messages))
		for i := range numbers {
			messages[i].Reserved, answer[i] = numbers[i], int64(numbers[i])
		}
		m.prepared(ctx, t, r, refused, func() refusal.Cause { return t.Send(r.at, nil, messages) },
			wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: answer}}})
	}
	if len(messages) > transaction.SendsMax { // too many: enlisting refuses them
		reserved(fsm.OK, nil)
		return
	}
	m.broker.Reserve(r.at, messages, reserved)
}

// cancelInTransaction is cancelScheduled in a transaction.
func (m *manager) cancelInTransaction(ctx context.Context, r *managed, body wire.Map) {
	numbers, resp, ok := sequenceNumbers(body)
	if !ok {
		r.respond(ctx, resp)
		return
	}
	m.conn.Lock()
	t, cause := m.transactions.Find(r.transaction)
	if cause.Condition == "" {
		cause = t.Cancel(r.at, numbers)
	}
	m.conn.Unlock()
	r.respond(ctx, enlistedResponse(cause))
}

// setStateInTransaction is setSessionState in a transaction.
func (m *manager) setStateInTransaction(ctx context.Context, r *managed, body wire.Map) {
	held, state, resp, ok := m.stateToSet(r, body)
	if !ok {
		r.respond(ctx, resp)
		return
	}
	t := m.prepare(ctx, r)
	if t == nil {
		return
	}
	go func() {
		defer m.conn.Recovered(ctx)
		ctx, cancel := context.WithTimeout(ctx, sessionWithin)
		defer cancel()
		refused := response{}
		_, err := held.Held(ctx) // of other failures the commit decides
		if code := refusal.CodeOf(err); err != nil && (code == fsm.SessionLockLost || code == fsm.EntityNotFound) {
			refused = responseFor(code)
		}
		m.prepared(ctx, t, r, refused, func() refusal.Cause { return t.SetState(r.at, held.StateChange(state)) }, nil)
	}()
}
