package amqp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The coordinator is the target at which a client opens and ends transactions (part 4, 4.1): the client sends
// commands on a link whose target is not an entity. The link needs no right, because every operation in a
// transaction needs its own.

// Capabilities of the coordinator (part 4, 4.5.7): several transactions in a session, and one transaction over
// several sessions of a connection.
const (
	localTransactions    = wire.Symbol("amqp:local-transactions")
	sessionsHaveSeveral  = wire.Symbol("amqp:multi-txns-per-ssn")
	severalSessionsShare = wire.Symbol("amqp:multi-ssns-per-txn")
)

// coordinatorReply returns the target of our attach.
func coordinatorReply() *wire.Coordinator {
	return &wire.Coordinator{Capabilities: []wire.Symbol{localTransactions, sessionsHaveSeveral, severalSessionsShare}}
}

// parseCommand reads a message to the coordinator: *wire.Declare or *wire.Discharge. The
// result may refer to payload.
func parseCommand(payload []byte) (any, error) {
	var command any
	for rest := payload; len(rest) > 0; {
		kind, value, _, after, err := wire.NextSection(rest)
		if err != nil {
			return nil, fmt.Errorf("command: %w", err)
		}
		rest = after
		if kind != wire.SectionValue {
			continue
		}
		if command, _, err = wire.DecodeValue(value); err != nil {
			return nil, fmt.Errorf("command: %w", err)
		}
	}
	switch command.(type) {
	case *wire.Declare, *wire.Discharge:
		return command, nil
	}
	return nil, fmt.Errorf("command: it is neither declare nor discharge")
}

// handleCommand handles one command to the coordinator.
func (c *conn) handleCommand(ctx context.Context, a *incomingDelivery) {
	command, err := parseCommand(a.payload)
	var cause refusal.Cause
	answered := true
	switch command := command.(type) {
	case *wire.Declare:
		cause = c.declareFor(a, command)
	case *wire.Discharge:
		cause, answered = c.discharge(ctx, a, command)
	default:
		cause = refusal.New(wire.ConditionDecodeError, "The coordinator cannot read the message: %s. Correct it.", err)
	}
	a.payload = nil
	if answered {
		c.finishSend(ctx, a, cause)
	}
}

// declareFor opens a transaction and writes its id to the answer.
func (c *conn) declareFor(a *incomingDelivery, d *wire.Declare) refusal.Cause {
	switch {
	case d.GlobalID != nil:
		return refusal.New(wire.ConditionNotImplemented, "Transactions over several brokers are not supported. Declare without a global-id.")
	case a.settled:
		return refusal.New(wire.ConditionNotAllowed, "Nobody can hear the id of a transaction that is declared settled. Send the declare unsettled.")
	}
	var id txnID
	_, _ = rand.Read(id[:]) // Read never fails
	c.mu.Lock()
	defer c.unlock()
	if a.link.state != attached {
		return unknownTransaction() // the link has ended: there is no answer
	}
	cause := c.transactions.declare(a.link, time.Now(), id)
	c.resetTimer()
	a.state = &wire.Declared{TxnID: id[:]}
	return cause
}

// discharge ends a transaction: it rolls the transaction back if the client requests that, otherwise it
// commits. answered is false if the answer follows later.
func (c *conn) discharge(ctx context.Context, a *incomingDelivery, d *wire.Discharge) (cause refusal.Cause, answered bool) {
	var id *txnID
	if known, ok := txnIDOf(d.TxnID); ok {
		id = &known
	}
	c.mu.Lock()
	defer c.unlock()
	t, cause := c.transactions.find(id)
	switch {
	case cause.Condition != "":
		return cause, true
	case t.isPending():
		c.dischargeLater(ctx, t, a, d.Fail)
		return refusal.Cause{}, false
	}
	return c.endTransaction(ctx, t, a, d.Fail)
}

// dischargeLater ends a transaction when its operations are answered: an operation that is refused then makes the
// commit fail. Nothing can be added meanwhile. mu is held.
func (c *conn) dischargeLater(ctx context.Context, t *transaction, a *incomingDelivery, fail bool) {
	c.transactions.beginCommit(t)
	waiting := *a
	t.resume = func() {
		if cause, answered := c.endTransaction(ctx, t, &waiting, fail); answered {
			c.brokerCalls = append(c.brokerCalls, func() { c.finishSend(ctx, &waiting, cause) })
		}
	}
}

// endTransaction rolls a transaction back or commits it. mu is held.
func (c *conn) endTransaction(ctx context.Context, t *transaction, a *incomingDelivery, fail bool) (cause refusal.Cause, answered bool) {
	switch {
	case fail:
	case t.rollbackReason.Condition != "":
		cause = t.rollbackOnlyRefusal()
	case t.sends+t.settlements > 0:
		c.commit(ctx, t, a)
		return refusal.Cause{}, false
	}
	c.transactions.rollback(t)
	return cause, true
}

// storeInTransaction enlists the messages of a delivery that is part of a transaction.
func (c *conn) storeInTransaction(ctx context.Context, a *incomingDelivery, messages []fsm.Message) {
	c.mu.Lock()
	c.countTransactedSend(a.bytes)
	t, cause := c.enlistSends(a.transaction, a.link.entity, a.link.viaEntity, messages)
	if cause.Condition == "" {
		sent := *a
		c.check(ctx, t, operationCheck{at: sent.link.entity, done: func(ctx context.Context, codes []fsm.Code) {
			sent.entityGone = codes[0] == fsm.EntityNotFound
			c.finishSend(ctx, &sent, c.refuseChecked(t, codes, sent.link.path))
		}})
	}
	c.unlock()
	if cause.Condition != "" {
		c.finishSend(ctx, a, cause)
	}
}

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
	t, cause := c.enlistSettlements(r.transaction, r.at, settlements)
	if cause.Condition == "" {
		c.check(ctx, t, operationCheck{at: r.at, locks: locksOf(settlements), done: func(ctx context.Context, codes []fsm.Code) {
			resp := responseFor(refusal.Worst(codes))
			resp.Cause = c.refuseChecked(t, codes, r.link.path)
			c.respond(ctx, r, resp)
		}})
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
