package amqp

import (
	"context"
	"crypto/rand"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The coordinator is the target at which a client opens and ends transactions (part 4, 4.1): the client sends
// commands on a link whose target is not an entity. The link needs no right, because every operation in a
// transaction needs its own.

// command handles a delivery to the coordinator.
func (a *incomingDelivery) command(ctx context.Context) {
	command, err := transaction.ParseCommand(a.payload)
	switch command := command.(type) {
	case *wire.Declare:
		a.payload = nil
		a.declare(ctx, command)
	case *wire.Discharge:
		id, waiting := transaction.IDOf(command.TxnID), *a
		waiting.payload = nil
		a.link.session.conn.transactions.Discharge(ctx, id, command.Fail, func(cause refusal.Cause) { waiting.finish(ctx, cause) })
	default:
		a.payload = nil
		a.finish(ctx, refusal.New(wire.ConditionDecodeError, "The coordinator cannot read the message: %s. Correct it.", err))
	}
}

// declare opens a transaction, now or when another one has ended, and answers with its id. A declare that waits gives its
// credit back, because the discharge for which it waits may come over the same link.
func (a *incomingDelivery) declare(ctx context.Context, d *wire.Declare) {
	switch {
	case d.GlobalID != nil:
		a.finish(ctx, refusal.New(wire.ConditionNotImplemented, "Transactions over several brokers are not supported. Declare without a global-id."))
		return
	case a.settled:
		a.finish(ctx, refusal.New(wire.ConditionNotAllowed, "Nobody can hear the id of a transaction that is declared settled. Send the declare unsettled."))
		return
	}
	var id transaction.ID
	_, _ = rand.Read(id[:]) // Read never fails
	c, waiting := a.link.session.conn, *a
	waiting.state = &wire.Declared{TxnID: id[:]}
	answer := func(cause refusal.Cause) { waiting.finish(ctx, cause) }
	c.mu.Lock()
	defer c.unlock()
	if a.link.state != attached {
		c.brokerCalls = append(c.brokerCalls, func() { answer(transaction.Unknown()) }) // the link has ended: nothing is sent
		return
	}
	if c.transactions.Declare(ctx, a.link, id, answer) {
		waiting.isRequest = true
		a.link.returnCredit()
	}
	c.resetTimer()
}

// storeInTransaction enlists the messages of a delivery that is part of a transaction.
func (a *incomingDelivery) storeInTransaction(ctx context.Context, messages []fsm.Message) {
	c := a.link.session.conn
	c.mu.Lock()
	c.costs.countTransactedSend(a.bytes)
	t, cause := c.transactions.Find(a.transaction)
	if cause.Condition == "" {
		cause = t.Send(a.link.entity, a.link.viaEntity, messages)
	}
	if cause.Condition == "" {
		sent := *a
		t.Check(ctx, sent.link.entity, nil, func(ctx context.Context, codes []fsm.Code) {
			sent.entityGone = codes[0] == fsm.EntityNotFound
			sent.finish(ctx, t.Refused(codes, sent.link.path))
		})
	}
	c.unlock()
	if cause.Condition != "" {
		a.finish(ctx, cause)
	}
}
