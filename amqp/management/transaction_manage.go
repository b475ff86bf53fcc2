package management

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
func (m *Manager) manageInTransaction(ctx context.Context, r *Request, operation string, body wire.Map) (done bool) {
	switch operation {
	case DispositionOperation:
		m.dispositionInTransaction(ctx, r, body)
		return true
	case ScheduleOperation:
		m.scheduleInTransaction(ctx, r, body)
		return true
	case CancelOperation:
		m.cancelInTransaction(ctx, r, body)
		return true
	case SetStateOperation:
		m.setStateInTransaction(ctx, r, body)
		return true
	case DeferredOperation:
		if mode, given := message.IntegerOf(body.Get("receiver-settle-mode")); !given || mode != 0 {
			return false
		}
		operation = "receive and delete"
	case BatchDeleteOperation, AddRuleOperation, RemoveRuleOperation:
	default:
		return false
	}
	resp := badRequest("")
	resp.Cause = notInTransaction(operation)
	r.Respond(ctx, resp)
	return true
}

// CausesRollback reports whether a refused operation makes its transaction rollback-only: the operation would
// have changed something, and a retry is pointless.
func CausesRollback(operation string, cause refusal.Cause) bool {
	switch operation {
	case DispositionOperation, ScheduleOperation, CancelOperation, BatchDeleteOperation, SetStateOperation, AddRuleOperation, RemoveRuleOperation:
		return cause.Condition != "" && cause.Retry != refusal.RetryLater
	case DeferredOperation:
		return cause.Condition == wire.ConditionNotAllowed // receive-and-delete
	}
	return false
}

func notInTransaction(operation string) refusal.Cause {
	return refusal.New(wire.ConditionNotAllowed, "The operation '%s' cannot be part of a transaction. Ask for it outside of one.", operation)
}

// inTransaction calls do with the transaction of a request, under the lock of the connection, or returns why it is not open.
func (m *Manager) inTransaction(r *Request, do func(*transaction.Transaction) refusal.Cause) refusal.Cause {
	m.conn.Lock()
	defer m.conn.Unlock()
	t, cause := m.transactions.Find(r.Transaction)
	if cause.Condition != "" {
		return cause
	}
	return do(t)
}

// dispositionInTransaction is updateDisposition in a transaction.
func (m *Manager) dispositionInTransaction(ctx context.Context, r *Request, body wire.Map) {
	settlements, resp, ok := m.settlementsOf(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	cause := m.inTransaction(r, func(t *transaction.Transaction) refusal.Cause {
		if cause := t.Settle(r.At, settlements); cause.Condition != "" {
			return cause
		}
		t.Check(ctx, r.At, locksOf(settlements), func(ctx context.Context, codes []fsm.Code) {
			resp := ResponseFor(refusal.Worst(codes))
			resp.Cause = t.Refused(codes, r.Path)
			r.Respond(ctx, resp)
		})
		return refusal.Cause{}
	})
	if cause.Condition != "" {
		r.Respond(ctx, enlistedResponse(cause))
	}
}

// enlistedResponse returns the response to a request that was enlisted or refused.
func enlistedResponse(cause refusal.Cause) Response {
	switch cause.Condition {
	case "":
		return success(nil)
	case wire.ConditionResourceLimitExceeded:
		return Response{Reply: refusal.Reply{Cause: cause, Status: http.StatusForbidden}}
	case wire.ConditionMessageLockLost:
		return Response{Reply: refusal.Reply{Cause: cause, Status: http.StatusGone}}
	}
	return Response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}}
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
func (m *Manager) prepare(ctx context.Context, r *Request) (prepared *transaction.Transaction) {
	cause := m.inTransaction(r, func(t *transaction.Transaction) refusal.Cause {
		prepared = t
		return t.Prepare()
	})
	if cause.Condition != "" {
		r.Respond(ctx, enlistedResponse(cause))
		return nil
	}
	return prepared
}

// prepared enlists a prepared operation unless the broker has refused it, answers it, and then resumes a discharge.
func (m *Manager) prepared(ctx context.Context, t *transaction.Transaction, r *Request, refused Response, enlist func() refusal.Cause, answer wire.Map) {
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
	r.Respond(ctx, refused)
	m.conn.Lock()
	defer m.conn.Unlock()
	t.Prepared()
}

// scheduleInTransaction is scheduleMessage in a transaction. The numbers are reserved at the broker, so they are those
// that the messages have after the commit; a rollback leaves a gap.
func (m *Manager) scheduleInTransaction(ctx context.Context, r *Request, body wire.Map) {
	messages, resp, ok := m.scheduledMessages(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	t := m.prepare(ctx, r)
	if t == nil {
		return
	}
	reserved := func(code fsm.Code, numbers []fsm.SequenceNumber) {
		defer m.conn.Recovered(ctx)
		refused := ResponseFor(code)
		refused.Reply = refused.WithEntity(r.NodeURL)
		answer := make([]int64, len(messages))
		for i := range numbers {
			messages[i].Reserved, answer[i] = numbers[i], int64(numbers[i])
		}
		m.prepared(ctx, t, r, refused, func() refusal.Cause { return t.Send(r.At, nil, messages) },
			wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: answer}}})
	}
	if len(messages) > transaction.SendsMax { // too many: enlisting refuses them
		reserved(fsm.OK, nil)
		return
	}
	m.broker.Reserve(r.At, messages, reserved)
}

// cancelInTransaction is cancelScheduled in a transaction.
func (m *Manager) cancelInTransaction(ctx context.Context, r *Request, body wire.Map) {
	numbers, resp, ok := sequenceNumbers(body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	r.Respond(ctx, enlistedResponse(m.inTransaction(r, func(t *transaction.Transaction) refusal.Cause { return t.Cancel(r.At, numbers) })))
}

// setStateInTransaction is setSessionState in a transaction.
func (m *Manager) setStateInTransaction(ctx context.Context, r *Request, body wire.Map) {
	held, state, resp, ok := m.stateToSet(r, body)
	if !ok {
		r.Respond(ctx, resp)
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
		refused := Response{}
		_, err := held.Held(ctx) // of other failures the commit decides
		if code := refusal.CodeOf(err); err != nil && (code == fsm.SessionLockLost || code == fsm.EntityNotFound) {
			refused = ResponseFor(code)
		}
		m.prepared(ctx, t, r, refused, func() refusal.Cause { return t.SetState(r.At, held.StateChange(state)) }, nil)
	}()
}
