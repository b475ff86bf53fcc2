package amqp

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// batchFormat is the message-format of a batch: one delivery whose data sections are whole messages, of which
// all or none are stored (docs/service-bus-protocol.md#batches).
const batchFormat = 0x80013700

// incomingLink is a link on which the client sends.
type incomingLink struct {
	link
	credit          receivingCredit
	messageBytesMax int
	viaEntity       *fsm.EntityRef // the entity through which its messages are sent in transactions; nil for none

	// State of the delivery that is being received in several frames.
	partial        bool
	id             uint32
	format         uint32
	settled        bool
	transaction    *transaction.ID // the transaction that it belongs to; nil for none
	refused        refusal.Cause   // the reason why the delivery is refused; its frames are discarded
	partialPayload []byte

	// closeReason is the reason why the link cannot be used any longer: its entity was deleted, and another
	// entity may have the same name now or later. Further deliveries are refused, and the link is detached
	// when all deliveries are answered.
	closeReason refusal.Cause
}

// incomingDelivery is a complete delivery.
type incomingDelivery struct {
	link       *incomingLink
	id         uint32
	format     uint32
	settled    bool
	refused    refusal.Cause
	entityGone bool // the entity no longer exists
	isRequest  bool // the delivery is a request: its credit is granted again with its response
	bytes      int  // bytes counted in conn.inFlightBytes
	decoded    int  // bytes counted in conn.memory
	// messages is the number of messages in the delivery, set when it is parsed.
	messages    int
	transaction *transaction.ID // the transaction that it belongs to; nil for none
	state       any             // the delivery state that answers it on success; nil: accepted
	spans       []trace.Span
	payload     []byte // part of the reader's buffer or of link.partialPayload: valid until the next frame
}

// ready grants credit at once: JavaScript considers a link busy that has no credit for a second.
func (l *incomingLink) ready() {
	switch {
	case l.kind != entityNode:
		l.credit.left = requestCreditMax
	case l.session.conn.memory.restricted():
		l.session.conn.memory.creditWithheld = true
	default:
		l.credit.refill(0)
	}
	l.emitFlow()
}

// setMaxMessageSize sets the size of the largest delivery that is accepted. A request may hold a message to be
// scheduled, so it may be larger than a message.
func (l *incomingLink) setMaxMessageSize(entityMax int) {
	switch l.kind {
	case entityNode:
		l.messageBytesMax = entityMax
	case managementNode:
		l.messageBytesMax = max(nodeMessageBytesMax, entityMax+requestOverhead)
	case cbsNode:
		l.messageBytesMax = tokenBytesMax
	case coordinatorNode:
		l.messageBytesMax = coordinatorBytesMax
	case subscriptionNode: // receivers only
	}
}

// setVia makes the messages of a link go through another entity, or returns the reason why they cannot.
// Outside of transactions they are sent directly to their destination, and the sender gets any refusal.
func (l *incomingLink) setVia(via fsm.EntityRef) refusal.Cause {
	if cause := attachNotAllowed(&via, true); cause.Condition != "" {
		return cause
	}
	if isDisabled(via.Settings.Status, true) {
		return refusal.ReplyOf(fsm.EntityDisabled).WithEntity(l.viaPath).Cause
	}
	l.viaEntity = &via
	return refusal.Cause{}
}

func (l *incomingLink) emitFlow() {
	f := l.session.flowState()
	handle, count, left := l.handle, l.credit.count, l.credit.left
	f.Handle, f.DeliveryCount, f.LinkCredit = &handle, &count, &left
	l.session.conn.emitFlow(l.session.channel, f)
}

// flow grants credit again to a sender that has used credit without sending, and answers one that requests the state of
// the link (.NET does so every 10 s).
func (l *incomingLink) flow(f *wire.Flow) {
	if l.state == attached && f.DeliveryCount != nil && l.credit.advance(*f.DeliveryCount) {
		l.replenishCredit()
	}
	if f.Echo && l.state == attached {
		l.emitFlow()
	}
}

func (l *incomingLink) drop() {
	l.discardPartial()
	if l.end() && l.kind == coordinatorNode {
		l.session.conn.transactions.RollbackOf(l)
	}
}

// discardPartial discards the delivery that is being received.
func (l *incomingLink) discardPartial() {
	l.session.conn.partialBytes -= len(l.partialPayload)
	l.partial, l.partialPayload, l.refused, l.transaction = false, nil, refusal.Cause{}, nil
}

// handleTransfer handles one transfer frame and, if it completes a delivery, stores or answers the delivery.
// mu is not held while the message is parsed and the broker is called.
func (c *conn) handleTransfer(ctx context.Context, frame *wire.Frame, t *wire.Transfer) *wire.Error {
	a, fault := c.receive(ctx, frame, t)
	switch {
	case fault != nil || a.link == nil:
		return fault
	case a.refused.Condition != "":
		a.finish(ctx, a.refused)
	case a.link.kind == coordinatorNode:
		a.command(ctx)
	case a.link.kind != entityNode:
		c.request(ctx, &a)
	default:
		a.store(ctx)
	}
	return nil
}

// receive checks and counts one transfer frame.
func (c *conn) receive(ctx context.Context, frame *wire.Frame, t *wire.Transfer) (a incomingDelivery, fault *wire.Error) {
	c.mu.Lock()
	defer c.unlock()
	if c.phase >= phaseClosing {
		return a, nil
	}
	c.costs.countTransfer(frame, t)
	s, fault := c.session(frame.Channel)
	if s == nil {
		return a, fault
	}
	s.countTransfer()
	c.trimKeptBuffers()
	e := s.links[t.Handle]
	if e == nil {
		s.fail(ctx, refusal.New(wire.ConditionUnattachedHandle, "There is no link with handle %d. Attach it first.", t.Handle))
		return a, nil
	}
	l, ok := e.(*incomingLink)
	if !ok {
		s.fail(ctx, refusal.New(wire.ConditionErrantLink, "A transfer came on a link that we send on. Attach one to send on."))
		return a, nil
	}
	if l.state != attached && l.state != attaching {
		return a, nil // it crossed our detach
	}
	return l.receive(ctx, t), nil
}

// receive adds one frame to the delivery that it belongs to.
func (l *incomingLink) receive(ctx context.Context, t *wire.Transfer) (a incomingDelivery) {
	c := l.session.conn
	if !l.partial {
		if !l.start(ctx, t) {
			return a
		}
	} else if t.DeliveryID != nil && *t.DeliveryID != l.id {
		l.detachWithError(ctx, l, refusal.New(wire.ConditionNotAllowed, "A delivery began before the one before it had ended. Send one after the other on a link."))
		return a
	}
	if t.Settled != nil {
		l.settled = l.settled || *t.Settled
	}
	if state, ok := t.State.(*wire.TransactionalState); ok && l.transaction == nil {
		l.joinTransaction(state)
	}
	if t.Aborted {
		l.discardPartial()
		l.returnCredit()
		return a
	}
	payload := l.join(ctx, t)
	if t.More || l.state != attached {
		return a
	}
	a = incomingDelivery{link: l, id: l.id, format: l.format, settled: l.settled, refused: l.refused, transaction: l.transaction, payload: payload}
	if l.transaction != nil {
		a.state = &wire.TransactionalState{TxnID: l.transaction[:], Outcome: &wire.Accepted{}}
	}
	a.bytes = len(payload) + inFlightOverhead
	c.inFlightBytes += a.bytes
	l.discardPartial()
	return a
}

// joinTransaction makes a delivery part of a transaction.
func (l *incomingLink) joinTransaction(state *wire.TransactionalState) {
	l.transaction = transaction.IDOf(state.TxnID)
	ok := l.transaction != nil
	if !ok {
		l.transaction = new(transaction.ID)
	}
	switch {
	case l.refused.Condition != "":
	case l.kind == coordinatorNode:
		l.refused = refusal.New(wire.ConditionNotAllowed, "A command to the coordinator cannot be part of a transaction. Send it without state.")
	case !ok:
		l.refused = transaction.Unknown()
	}
}

// start begins a delivery; it returns false if it had to detach the link instead.
func (l *incomingLink) start(ctx context.Context, t *wire.Transfer) bool {
	if !l.credit.take() {
		if l.state == attaching {
			l.refuseAttaching(ctx, refusal.New(wire.ConditionTransferLimitExceeded, "A transfer came before the link was attached. Wait for credit."))
			return false
		}
		l.detachWithError(ctx, l, refusal.AfterChange(wire.ConditionTransferLimitExceeded, "The sender exceeded the credit of the link. Wait for credit."))
		return false
	}
	if t.DeliveryID == nil {
		l.detachWithError(ctx, l, refusal.New(wire.ConditionInvalidField, "The first frame of a delivery has no delivery-id. Send one."))
		return false
	}
	l.partial, l.id, l.format, l.settled = true, *t.DeliveryID, 0, false
	if t.MessageFormat != nil {
		l.format = *t.MessageFormat
	}
	switch {
	case l.closeReason.Condition != "":
		l.refused = l.closeReason
	case l.kind == entityNode && l.session.conn.memory.shortOfMemory():
		l.session.conn.costs.countMemoryRefusal()
		l.refused = l.session.conn.refuseForMemory()
	case l.format != 0 && l.format != batchFormat:
		l.refused = refusal.New(wire.ConditionNotImplemented, "Message format %#x is not known. Use 0, or %#x for a batch.", l.format, batchFormat)
	}
	return true
}

// join returns the bytes of the delivery received so far. A delivery in one frame is not copied. A refused
// delivery is counted but not kept.
func (l *incomingLink) join(ctx context.Context, t *wire.Transfer) []byte {
	c := l.session.conn
	switch {
	case l.refused.Condition != "":
	case len(l.partialPayload)+len(t.Payload) > l.deliveryBytesMax():
		l.refusePartial(refusal.New(wire.ConditionMessageSizeExceeded, "The message is larger than the %d bytes that are allowed. Send a smaller one, or raise the maximum message size of the entity.", l.messageBytesMax))
	case t.More && l.kind == entityNode && c.memory.shortOfMemory():
		c.costs.countMemoryRefusal()
		l.refusePartial(c.refuseForMemory())
	}
	switch {
	case l.refused.Condition != "":
		return nil
	case !t.More && len(l.partialPayload) == 0:
		return t.Payload
	case c.partialBytes+len(t.Payload) > c.partialBytesMax():
		l.detachWithError(ctx, l, refusal.AfterChange(wire.ConditionResourceLimitExceeded, "Too many deliveries are unfinished on the connection. Send them one after the other, or over more connections."))
		return nil
	}
	c.partialBytes += len(t.Payload)
	l.partialPayload = append(l.partialPayload, t.Payload...)
	return l.partialPayload
}

// deliveryBytesMax returns the size of the largest delivery of the current format.
func (l *incomingLink) deliveryBytesMax() int {
	if l.format == batchFormat {
		return l.messageBytesMax + batchBytesMore
	}
	return l.messageBytesMax
}

// refusePartial refuses a delivery that was received in part, and releases that part.
func (l *incomingLink) refusePartial(cause refusal.Cause) {
	l.session.conn.partialBytes -= len(l.partialPayload)
	l.partialPayload, l.refused = nil, cause
}
