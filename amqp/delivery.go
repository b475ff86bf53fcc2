package amqp

import (
	"encoding/binary"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// transferHead stores the optional fields of a transfer.
type transferHead struct {
	transfer wire.Transfer
	id       uint32
	format   uint32
	settled  bool
	tag      fsm.LockToken
}

// flush sends queued deliveries while there is credit, window and output space.
func (l *outgoingLink) flush() {
	s, c := l.session, l.session.conn
	for {
		switch {
		case l.partial.rest == nil && (len(l.queue) == 0 || l.credit.left == 0):
			return
		case s.remoteWindow == 0:
			return // session.flow resumes the link
		case len(c.out) >= outBytesHigh:
			l.waitForOutput()
			return
		case l.partial.aborted:
			l.sendFrames(wire.Transfer{Handle: l.handle, Aborted: true}, nil)
			l.endPartial()
		case l.partial.rest != nil:
			if l.partial.rest = l.sendFrames(wire.Transfer{Handle: l.handle}, l.partial.rest); l.partial.rest == nil {
				l.endPartial()
			}
		case c.memory.partlySentBytes > queuedBytesMax:
			l.waitForOutput() // other deliveries of the connection have started and not ended: the window is too small
			return
		default:
			next := l.queue[0]
			l.queue[0] = queuedDelivery{}
			if l.queue = l.queue[1:]; len(l.queue) == 0 {
				l.queue = nil
			}
			l.beginDelivery(next)
		}
	}
}

// beginDelivery sends the first frames of a delivery.
func (l *outgoingLink) beginDelivery(q queuedDelivery) {
	s, c := l.session, l.session.conn
	h := &c.scratchHead
	c.costs.countDelivery()
	payload := q.response
	var delivered *trace.SpanContext
	c.queuedBytes -= q.bytes()
	c.memory.queuedResponses -= len(q.response)
	if payload == nil {
		h.tag = l.tagOf(&q.delivery)
		var err error
		options := message.DeliveryOptions{Peeked: l.browses}
		if !l.presettled {
			options.LockToken = &h.tag
		}
		c.scratch, err = message.AppendDelivery(c.scratch[:0], l.entity, q.delivery, options)
		if err != nil { // it was valid when it was stored; its lock will expire
			c.log.Error("failed to encode stored message", "path", l.path, "sequence", uint64(q.delivery.Lock.Sequence), "error", err)
			return
		}
		payload = c.scratch
		c.stats.Count().Delivered++
		if span := c.tracer.StartDeliver(l.path, &q.delivery); span != nil {
			defer span.End()
			sc := span.SpanContext()
			delivered = &sc
		}
	} else {
		h.tag = l.session.numberedTag()
	}
	h.id, h.format, h.settled = s.nextDelivery, 0, l.presettled
	s.nextDelivery++
	l.credit.take()
	if !l.presettled {
		l.lossFlow = false
		s.unsettled[h.id] = unsettled{link: l, lock: q.delivery.Lock, until: q.delivery.LockedUntil, delivered: delivered}
	}
	l.partial.lock, l.partial.id = q.delivery.Lock, h.id
	tag := h.tag[:]
	if q.response == nil && l.receiveAndDelete {
		tag = tag[:0]
	}
	rest := l.sendFrames(wire.Transfer{
		Handle: l.handle, DeliveryID: &h.id, DeliveryTag: tag, MessageFormat: &h.format, Settled: &h.settled,
	}, payload)
	if rest != nil && q.response == nil {
		rest = append([]byte(nil), rest...) // copied out of scratch
	}
	l.partial.rest, l.partial.bytes = rest, len(rest)
	c.memory.partlySentBytes += len(rest)
	s.countUnsettled()
	if cap(c.scratch) > bufferBytesKept {
		c.scratch = nil
	}
}

// tagOf returns the delivery-tag of a message: the token of its lock, or a number if it has none.
func (l *outgoingLink) tagOf(d *fsm.Delivery) fsm.LockToken {
	if l.browses {
		return l.session.numberedTag()
	}
	return l.session.conn.config.Broker.LockToken(l.entity, d.Lock)
}

// numberedTag returns the delivery-tag of the next delivery if that has no lock token.
func (s *session) numberedTag() (tag fsm.LockToken) {
	binary.BigEndian.PutUint32(tag[:], s.nextDelivery)
	return tag
}

// endPartial drops the delivery that was sent in part.
func (l *outgoingLink) endPartial() {
	l.session.conn.memory.partlySentBytes -= l.partial.bytes
	l.partial = partialDelivery{}
}

// transferHeadBytes is an upper bound for the frame header and the fields of a transfer.
const transferHeadBytes = 64

// sendFrames writes frames until the payload or the window is used up, and returns the rest of the payload,
// nil if there is none.
func (l *outgoingLink) sendFrames(t wire.Transfer, payload []byte) []byte {
	s, c := l.session, l.session.conn
	most := int(c.peerFrameMax) - transferHeadBytes
	head := &c.scratchHead.transfer
	for s.remoteWindow > 0 {
		piece := payload[:min(most, len(payload))]
		payload = payload[len(piece):]
		*head = t
		head.More = len(payload) > 0
		c.out = wire.AppendTransfer(c.out, s.channel, head, piece)
		s.nextOutgoing++
		s.remoteWindow--
		if !head.More {
			c.notify()
			return nil
		}
		t = wire.Transfer{Handle: l.handle}
	}
	c.notify()
	return payload
}
