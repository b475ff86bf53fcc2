package amqp

import (
	"context"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/tracing"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// trimKeptBuffers counts the buffers that the reader keeps for the next delivery, and releases them
// when memory is short. mu is held.
func (c *conn) trimKeptBuffers() {
	c.memory.readerBufferBytes = cap(c.idBuffer)
	if c.memory.readerBufferBytes > fairBytesMin && c.memory.restricted() {
		c.idBuffer, c.memory.readerBufferBytes = nil, 0
	}
}

// store passes the message, or the messages of a batch, to the broker.
func (a *incomingDelivery) store(ctx context.Context) {
	c := a.link.session.conn
	messages, err := c.parse(a)
	a.payload = nil
	if err != nil {
		a.finish(ctx, refusal.Of("The message", err))
		return
	}
	a.messages, a.spans = len(messages), c.tracer.StartReceive(a.link.path, messages)
	a.chargeDecoded(messages)
	if a.transaction != nil {
		a.storeInTransaction(ctx, messages)
		return
	}
	sent := *a
	c.config.Broker.Send(a.link.entity, messages, func(code fsm.Code) {
		sent.entityGone = code == fsm.EntityNotFound
		reply := refusal.ReplyOf(code)
		if code != fsm.OK {
			reply = reply.WithEntity(c.urlOf(sent.link.path))
		}
		sent.finish(ctx, c.withBusyReason(code, reply.Cause))
	})
}

// chargeDecoded counts the memory that messages need besides their payloads, if the overhead of one delivery
// does not cover it: for a batch, and for properties that rules use.
func (a *incomingDelivery) chargeDecoded(messages []fsm.Message) {
	bytes := (len(messages) - 1) * inFlightOverhead
	for i := range messages {
		bytes += len(messages[i].Properties)
	}
	if bytes <= inFlightOverhead {
		return
	}
	c := a.link.session.conn
	c.mu.Lock()
	defer c.unlock()
	a.decoded = bytes
	c.memory.decodedBytes += bytes
}

// parse converts a delivery to its stored form; for a topic, with the properties that its rules see. Only the
// reader calls it.
func (c *conn) parse(a *incomingDelivery) (messages []fsm.Message, err error) {
	if cap(c.idBuffer) > bufferBytesKept {
		c.idBuffer = nil
	}
	payload := a.payload
	if a.format == batchFormat {
		var ok bool
		if c.idBuffer, ok = message.AppendBatchWithIDs(c.idBuffer[:0], payload); ok {
			payload = c.idBuffer
		}
		messages, err = message.ParseBatch(payload)
	} else {
		messages = make([]fsm.Message, 1)
		messages[0], err = message.ParseWithID(&c.idBuffer, payload)
	}
	if err == nil {
		err = message.ApplySessions(&a.link.entity, messages)
	}
	if err == nil {
		err = checkKeys(&a.link.entity.Entity, messages)
	}
	if err == nil && a.link.entity.Kind == fsm.TopicEntity {
		err = c.rules.ReadAll(messages)
	}
	return messages, err
}

// checkKeys refuses a batch for several shards of a partitioned entity: it is stored as a whole. Messages with a key and
// messages without one are for several shards.
func checkKeys(e *fsm.Entity, messages []fsm.Message) error {
	if len(e.Shards) == 0 || len(messages) < 2 {
		return nil
	}
	key, _ := e.ShardKey(&messages[0])
	for i := range messages[1:] {
		other, _ := e.ShardKey(&messages[i+1])
		switch {
		case other == key:
		case e.Settings.RequiresDuplicateDetection:
			return message.NewError(wire.ConditionNotAllowed, "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an entity with partitioning and duplicate detection enabled. "+
				"The batch has the keys '%.128s' and '%.128s'", key, other)
		default:
			return message.NewError(wire.ConditionNotAllowed, "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with partitioning enabled. "+
				"The batch has the keys '%.128s' and '%.128s'", key, other)
		}
	}
	return nil
}

// finish answers a delivery: accepted without a refusal, otherwise rejected. The goroutines of the broker
// call it as well as the reader.
func (a *incomingDelivery) finish(ctx context.Context, cause refusal.Cause) {
	c := a.link.session.conn
	if a.spans != nil {
		tracing.End(a.spans, cause.Condition)
	}
	c.mu.Lock()
	defer c.unlock()
	c.inFlightBytes -= a.bytes
	c.memory.decodedBytes -= a.decoded
	c.resumeReader()
	c.costs.countDelivery()
	a.countEnd(cause)
	if cause.Condition != "" {
		c.transactions.MarkRollbackOnly(a.transaction, cause)
	}
	l := a.link
	s := l.session
	if l.state != attached || s.ended {
		return
	}
	switch {
	case a.settled: // sent settled: no answer (docs/requirements.md#t3)
	case cause.Condition == "" && a.state != nil:
		last := a.id
		c.emitDisposition(s.channel, &wire.Disposition{Role: wire.RoleReceiver, First: a.id, Last: &last, Settled: true, State: a.state})
	case cause.Condition == "":
		s.queueDisposition(wire.RoleReceiver, accepted, a.id, a.id)
	default:
		last := a.id
		c.emitDisposition(s.channel, &wire.Disposition{
			Role: wire.RoleReceiver, First: a.id, Last: &last, Settled: true,
			State: &wire.Rejected{Error: c.newError(ctx, cause, "path", l.path)},
		})
	}
	if a.entityGone {
		l.closeReason = cause
	}
	if !a.isRequest {
		l.returnCredit()
	}
	l.endClosed(ctx)
}

// returnCredit grants the credit of one answered delivery again.
func (l *incomingLink) returnCredit() {
	l.credit.unstored--
	l.replenishCredit()
}

// replenishCredit grants the credit that deliveries in flight do not need, and sends a flow when enough has accumulated.
func (l *incomingLink) replenishCredit() {
	if l.kind != entityNode {
		if free := remaining(requestCreditMax, l.credit.unstored); free > l.credit.left+requestCreditMax/2 {
			l.credit.left = free
			l.emitFlow()
		}
		return
	}
	if l.session.conn.memory.restricted() {
		l.session.conn.memory.creditWithheld = true // restoreCredit grants it
		return
	}
	if l.credit.refill(linkCreditMax / 2) {
		l.emitFlow()
	}
}

// countEnd counts the end of the delivery. mu is held.
func (a *incomingDelivery) countEnd(cause refusal.Cause) {
	t := a.link.session.conn.stats.Count()
	a.link.countThrottled(cause, 1)
	switch {
	case a.link.kind == cbsNode || a.link.kind == managementNode:
		t.Requests++
	case cause.Condition == "":
		t.Received += uint64(a.messages)
	case a.settled:
		t.Presettled++
	}
}
