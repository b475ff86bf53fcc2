package amqp

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/receiver"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
)

// lockState is the state of the one outstanding Lock of a link. The decision to lock is made with mu held, and
// the call without, so a Cancel in between would overtake the Lock; it is recorded and made after the call.
type lockState uint8

const (
	lockIdle lockState = iota
	lockCalling
	lockWaiting
)

// outgoingLink is a link on which the client receives: messages from an entity, or responses of a node.
type outgoingLink struct {
	link
	credit           sendingCredit
	receiveAndDelete bool            // receive-and-delete
	browses          bool            // messages are shown and stay as they are
	presettled       bool            // deliveries are sent settled
	replyTo          string          // target address, which requests use as their reply-to
	selector         *selectorFilter // nil: none

	// Fields of a link that requests or holds a session.
	wantedSession *sessionFilter
	acceptTimeout time.Duration
	// acceptBusyUntil is when a busy broker is not asked for the session any more.
	acceptBusyUntil time.Time
	cancelAccept    func() // ends AcceptSession; nil before AcceptSession was called
	messageSession  Session
	pendingDetach   *wire.Detach // our detach, once the session is released
	lossTimer       *time.Timer  // asks whether the session lock has ended, and then ends the hold of the link
	sessionLost     bool         // it has ended, and the client has not detached yet
	settling        int          // deliveries whose settlement is not answered
	lossFlow        bool         // the client sent a flow after it settled all deliveries, when some answers were not sent yet
	sessionFree     bool         // the session is released
	sessionKept     bool         // the link has ended, and transactions settle messages of its session
	enlisted        int          // deliveries that transactions settle

	receiver       Receiver // nil for nodes
	lock           lockState
	lockRound      uint64 // counts calls of Lock, to distinguish the end of a call from that of a later one
	lockDrains     bool   // the outstanding call serves a drain, and does not wait
	cancelling     bool   // Cancel was called, or is to be called, for the outstanding Lock
	receiverClosed bool   // Close was called

	queue            []queuedDelivery // locked messages, or responses, that are not started
	partial          partialDelivery  // the delivery that was sent in part
	waitingForOutput bool             // the link is in conn.waitingForOutput
}

// queuedDelivery is one delivery that waits for credit, window or output space.
type queuedDelivery struct {
	delivery fsm.Delivery
	response []byte // an encoded response; delivery is then empty
}

// bytes returns the number of bytes that the delivery counts in conn.queuedBytes.
func (q *queuedDelivery) bytes() int { return len(q.response) + len(q.delivery.Payload) }

// partialDelivery is the rest of a delivery whose first frames were sent.
type partialDelivery struct {
	rest    []byte // nil if there is none
	bytes   int    // bytes counted in conn.memory
	id      uint32 // delivery-id
	lock    fsm.LockID
	aborted bool // the rest is not sent, but a frame that aborts the delivery
}

// ready opens the receiver and starts to lock, because credit may have been granted before our attach.
func (l *outgoingLink) ready() {
	broker := l.session.conn.config.Broker
	switch {
	case l.kind != entityNode || l.receiver != nil:
	case l.browses:
		l.receiver = receiver.NewBrowser(l.source())
	case l.selector != nil:
		l.receiver = receiver.NewConsumer(l.source(), l.receiveAndDelete)
	default:
		l.receiver = broker.Receiver(l.entity, l.receiveAndDelete)
	}
	l.sendQueued()
}

// flow handles the receiver's credit (part 2, 2.6.7).
func (l *outgoingLink) flow(f *wire.Flow) {
	if l.state != attached && l.state != attaching {
		return
	}
	if l.sessionLost {
		l.flowAfterLoss(f)
		return
	}
	l.lossFlow = l.settling > 0 && !l.hasUnsettled()
	if f.LinkCredit != nil {
		l.credit.flow(f.DeliveryCount, *f.LinkCredit, f.Drain)
	}
	if l.state == attaching {
		return // ready continues
	}
	if l.credit.drain && l.lock != lockIdle {
		l.cancel()
	}
	l.sendQueued()
	if f.Echo && l.state == attached {
		l.emitFlow(false)
	}
}

// emitFlow sends the state of the link to the receiver. go-amqp panics if link-credit is missing, and answers
// echo, so echo is never set.
func (l *outgoingLink) emitFlow(drain bool) {
	f := l.session.flowState()
	handle, count, left, available := l.handle, l.credit.count, l.credit.left, uint32(len(l.queue))
	f.Handle, f.DeliveryCount, f.LinkCredit, f.Available, f.Drain = &handle, &count, &left, &available, drain
	l.session.conn.emitFlow(l.session.channel, f)
}

// sendQueued sends as much as possible and then requests more from the broker if there is credit. It is called
// whenever something that it waits for may be available: credit, window, space in the output, or the end of a
// Lock.
func (l *outgoingLink) sendQueued() {
	if l.state != attached {
		return
	}
	l.flush()
	if l.sessionLost {
		return
	}
	l.releaseExcess()
	s, c := l.session, l.session.conn
	switch {
	case l.lock != lockIdle || l.partial.rest != nil || c.phase >= phaseClosing:
	case l.credit.drain && (l.credit.left == 0 || l.receiver == nil && len(l.queue) == 0):
		l.endDrain()
	case len(l.queue) > 0 || l.credit.left == 0 || l.receiver == nil:
	case s.remoteWindow == 0 || s.unsettledFull():
	case len(c.out) >= outBytesHigh:
		l.waitForOutput()
	default:
		l.startLock()
	}
}

// waitForOutput makes the writer resume the link when the output is written.
func (l *outgoingLink) waitForOutput() {
	if !l.waitingForOutput {
		l.waitingForOutput = true
		l.session.conn.waitingForOutput = append(l.session.conn.waitingForOutput, l)
	}
}

// endDrain answers a drain: all available messages were sent, and the rest of the credit is returned (part 2,
// 2.6.7).
func (l *outgoingLink) endDrain() {
	l.credit.endDrain()
	l.emitFlow(true)
}

// startLock requests as many messages as there is credit for. A draining link does not wait.
func (l *outgoingLink) startLock() {
	wait := lockWait
	if l.lockDrains = l.credit.drain; l.lockDrains {
		wait = 0
	}
	l.lock, l.cancelling = lockCalling, false
	l.lockRound++
	round, most := l.lockRound, int(min(l.credit.left, lockBatchMax))
	c := l.session.conn
	bytes := lockBytesMax
	if c.memory.restricted() {
		bytes = fairBytesMin // receiving continues, with fewer bytes at a time
	}
	c.brokerCalls = append(c.brokerCalls, func() {
		l.receiver.Lock(most, bytes, wait, l.locked)
		c.mu.Lock()
		defer c.unlock()
		if l.lock == lockCalling && l.lockRound == round {
			l.lock = lockWaiting
		}
		l.makeDelayedCalls(round)
	})
}

// makeDelayedCalls makes the calls that were delayed until Lock was called.
func (l *outgoingLink) makeDelayedCalls(round uint64) {
	c := l.session.conn
	switch {
	case l.lockRound != round:
	case l.state != attached || l.sessionLost:
		l.closeReceiver()
	case l.cancelling && l.lock == lockWaiting:
		c.brokerCalls = append(c.brokerCalls, l.receiver.Cancel)
	}
}

// closeReceiver frees the receiver, once. A session is kept while transactions settle messages of it.
func (l *outgoingLink) closeReceiver() {
	switch {
	case l.receiverClosed:
	case l.keepsSession():
		l.keepSession()
	case l.messageSession != nil:
		l.receiverClosed = true
		l.releaseSession()
	default:
		l.receiverClosed = true
		l.session.conn.brokerCalls = append(l.session.conn.brokerCalls, l.receiver.Close)
	}
}

// cancel ends the wait of the outstanding Lock.
func (l *outgoingLink) cancel() {
	if l.cancelling {
		return
	}
	l.cancelling = true
	if l.lock == lockWaiting {
		l.session.conn.brokerCalls = append(l.session.conn.brokerCalls, l.receiver.Cancel)
	}
}

// locked is the done function of Lock.
func (l *outgoingLink) locked(code fsm.Code, deliveries []fsm.Delivery) {
	c := l.session.conn
	defer c.recovered(context.Background())
	c.mu.Lock()
	defer c.unlock()
	l.lock = lockIdle
	if l.state != attached || l.sessionLost || c.phase >= phaseClosing {
		l.release(deliveries)
		return
	}
	if code != fsm.OK && code != fsm.Timeout {
		l.release(deliveries)
		l.lockFailed(code)
		return
	}
	if l.browses {
		c.costs.countBrowse(deliveries)
	}
	if len(deliveries) == 0 {
		c.costs.countEmptyLock()
	}
	for _, d := range deliveries {
		c.queuedBytes += len(d.Payload)
		l.queue = append(l.queue, queuedDelivery{delivery: d})
	}
	// A call that waited and was cancelled for the drain may have ended before the broker searched for
	// messages: only a call that does not wait shows that there are none. sendQueued makes that call.
	if len(deliveries) == 0 && l.lockDrains && l.credit.drain {
		l.endDrain()
	}
	l.sendQueued()
}

// lockFailed detaches a link whose entity was deleted or cannot be reached at the moment. The second case is
// reported as detach-forced, on which every SDK attaches again: after server-busy, Go would continue to use
// the ended link.
func (l *outgoingLink) lockFailed(code fsm.Code) {
	cause := refusal.ReplyOf(code).WithEntity(l.session.conn.urlOf(l.path)).Cause
	switch {
	case code == fsm.SessionLockLost:
		l.loseSessionSoon()
		return
	case code == fsm.NotAllowed:
		cause = receiveNotAllowed(&l.entity)
	case cause.Retry == refusal.RetryLater:
		cause.Condition = wire.ConditionDetachForced
	}
	l.detachWithError(context.Background(), l, cause)
}

// releaseExcess releases messages that were locked for credit that the receiver has revoked, and messages that
// would make the connection hold too much. Messages received with receive-and-delete cannot be released: they
// wait until the receiver grants credit again.
func (l *outgoingLink) releaseExcess() {
	if l.receiveAndDelete || l.browses || l.receiver == nil {
		return
	}
	keep := min(len(l.queue), int(l.credit.left))
	if c := l.session.conn; c.queuedBytes > c.memory.fairPart(queuedBytesMax) {
		keep = 0
	}
	l.releaseQueued(l.queue[keep:])
	l.queue = l.queue[:keep]
}

// releaseQueued releases deliveries that were not started.
func (l *outgoingLink) releaseQueued(queue []queuedDelivery) {
	if len(queue) == 0 {
		return
	}
	deliveries := make([]fsm.Delivery, 0, len(queue))
	for i := range queue {
		l.session.conn.queuedBytes -= queue[i].bytes()
		l.session.conn.memory.queuedResponses -= len(queue[i].response)
		deliveries = append(deliveries, queue[i].delivery)
		queue[i] = queuedDelivery{}
	}
	l.release(deliveries)
}

// release unlocks messages that the client has not received; this does not count as a failed delivery.
func (l *outgoingLink) release(deliveries []fsm.Delivery) {
	if l.receiveAndDelete || l.browses || l.kind != entityNode || len(deliveries) == 0 {
		return
	}
	l.session.conn.costs.countReleased(deliveries)
	settlements := make([]fsm.Settlement, len(deliveries))
	for i := range deliveries {
		settlements[i] = fsm.Settlement{Lock: deliveries[i].Lock, Verb: fsm.Release}
	}
	c := l.session.conn
	c.brokerCalls = append(c.brokerCalls, func() {
		c.config.Broker.Settle(l.entity, settlements, func([]fsm.Code) { l.messagesReturned(settlements) })
	})
}

// drop ends the link. Messages that the client has locked remain locked until the lock expires, so the client
// can still settle them through the management node (docs/requirements.md#t14,
// docs/service-bus-protocol.md#settlement-answers); deliveries that were not completely sent are released. A
// session is released with all messages that were locked under it
// (docs/service-bus-protocol.md#holding-a-session).
func (l *outgoingLink) drop() {
	if !l.end() {
		return
	}
	s := l.session
	if l.cancelAccept != nil && l.messageSession == nil {
		s.conn.brokerCalls = append(s.conn.brokerCalls, l.cancelAccept)
	}
	if l.partial.rest != nil && l.receiver != nil && !l.partial.aborted {
		l.release([]fsm.Delivery{{Lock: l.partial.lock}})
	}
	l.endPartial()
	l.dropQueued()
	if !l.sessionLost {
		l.forgetUnsettled()
	}
}

// dropQueued releases what is queued, and the receiver.
func (l *outgoingLink) dropQueued() {
	l.releaseQueued(l.queue)
	l.queue = nil
	if l.lossTimer != nil {
		l.lossTimer.Stop()
	}
	if l.receiver != nil && l.lock != lockCalling { // otherwise makeDelayedCalls closes it
		l.closeReceiver()
	}
}

// respond queues a response of a node. If a client grants no credit for its own responses, its link is
// detached before they fill the memory.
func (l *outgoingLink) respond(ctx context.Context, response []byte) {
	if l.state != attached {
		return
	}
	if len(l.queue) >= responsesMax || l.session.conn.queuedBytes > queuedBytesMax {
		l.detachWithError(ctx, l, refusal.AfterChange(wire.ConditionResourceLimitExceeded, "Too many responses wait for credit. Give credit before asking for more."))
		return
	}
	l.session.conn.flushDispositions() // the request is accepted before it is answered
	q := queuedDelivery{response: response}
	l.session.conn.queuedBytes += q.bytes()
	l.session.conn.memory.queuedResponses += len(response)
	l.queue = append(l.queue, q)
	l.sendQueued()
}

// lockExpired reports whether the lock of a delivery has expired unless it was renewed.
func (u unsettled) lockExpired(now time.Time) bool {
	return u.until != 0 && u.until < fsm.Instant(now.UnixMilli())
}

// forgetLost forgets the deliveries of a link that has lost its session. mu is held.
func (l *outgoingLink) forgetLost() {
	if !l.sessionLost {
		return
	}
	l.sessionLost = false
	l.forgetUnsettled()
}

// source returns what a link that browses or has a selector searches; the selector was parsed before.
func (l *outgoingLink) source() receiver.Source {
	c := l.session.conn
	s := receiver.Source{
		Broker: c.config.Broker, At: l.entity, PeekMessagesMax: management.PeekMessagesMax, PeekBytesMax: management.PeekBytesMax,
		Work: &c.scanWork, Log: c.log, Recovered: c.recovered,
	}
	if l.selector != nil {
		parsed, err := evaluate.NewSelector(l.selector.sql)
		if err != nil {
			panic("amqp: selector that was parsed before: " + err.Error())
		}
		s.Selector = parsed
	}
	return s
}

// messagesReturned tells the receiver of a link with a selector which messages the client has settled such that they become
// ready again.
func (l *outgoingLink) messagesReturned(settlements []fsm.Settlement) {
	if r, ok := l.receiver.(*receiver.Consumer); ok {
		r.Returned(settlements)
	}
}

// setSelector sets the selector of a link that is being attached.
func (l *outgoingLink) setSelector(f *selectorFilter) {
	if l.selector = f; f != nil {
		l.reply.Source.Filter = f.reply
	}
}
