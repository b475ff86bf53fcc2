package queue

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/fsm/totals"
)

// forwarding takes messages into batches for other entities.
type forwarding struct {
	*core
	*messages

	epoch    uint64 // of the batches that are taken from now on, see BeginEpoch; 0 until the first
	setAside uint64 // bytes that the current entry stored of messages that expired or were forwarded too often
}

const (
	// setAsideBytesMax bounds the patches that one entry writes for messages that expired or were
	// forwarded too often when a batch is taken: the entry begins no such
	// message once it has stored so many bytes.
	setAsideBytesMax = 4 << 20
)

// Reason and description of messages that were forwarded HopsMax times; the reason is that of Azure
// Service Bus.
const (
	reasonHops      = "MaxTransferHopCountExceeded"
	descriptionHops = "The message was not forwarded to %s. It was forwarded %d times, which is as often as a message may be."
)

// reportsForwarding reports whether effects of this sub-queue concern forwarding.
func (sub *subqueue) reportsForwarding() bool { return sub.resumed || sub.forwardsReady() }

// awaitingTransfer counts the messages that are in flight or wait to be forwarded.
func (sub *subqueue) awaitingTransfer() uint64 {
	return sub.ix.Count(fsm.Forwarding) + sub.readyToForward()
}

// storedCount counts the messages without those that are Deleting.
func (sub *subqueue) storedCount() uint64 { return sub.ix.Total() - sub.ix.Count(fsm.Deleting) }

// notifyForward adds the effect that starts forwarding. A batch in flight needs none, unless the
// forwarder that carried it stopped with the last process.
func (sub *subqueue) notifyForward(effects []fsm.Effect) []fsm.Effect {
	resumed := sub.resumed
	sub.resumed = false
	ready := sub.readyToForward()
	if sub.out.hasBatch() && !resumed || !sub.out.hasBatch() && ready == 0 {
		return effects
	}
	return append(effects, fsm.Effect{Address: sub.address, Ready: ready, Kind: fsm.EffectForward})
}

// forward ends the batch in flight, if the command reports its outcome, and takes the next one, if
// the command names a destination.
func (q *forwarding) forward(c *fsm.ForwardMessages) fsm.Result {
	if c.Check() != fsm.OK {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	sub := q.forwardSource(c.Address)
	if sub == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if sub.out.hasBatch() && sub.out.serial == c.Done {
		if len(c.Codes) != 0 && len(c.Codes) != len(sub.out.numbers) {
			return fsm.Result{Code: fsm.InvalidArgument}
		}
		q.endBatch(sub, c.Codes)
	}
	if !sub.out.hasBatch() && sub.forwardsReady() && c.To != (fsm.Destination{}) {
		q.takeBatch(sub, c)
	}
	for i := range sub.entity.subs {
		sub.entity.subs[i].ix.RemoveStaleTimers()
	}
	return q.batchResult(sub)
}

// endBatch ends the batch in flight. A message that its destination refused moves to a dead-letter queue, so that it does not
// block the others, unless it is a dead letter: that one is ready again.
func (q *forwarding) endBatch(sub *subqueue, codes []fsm.Code) {
	for i, n := range sub.out.numbers {
		at, _ := sub.ix.Seek(n)
		rec := sub.ix.Get(at)
		switch {
		case len(codes) == 0 || codes[i] == fsm.OK:
			q.deleteMessage(sub, at, &rec, &sub.entity.totals.Forwarded)
		case sub.address.Sub == fsm.DeadLetterQueue:
			rec.Return()
			sub.ix.Set(at, rec)
		default:
			name := sub.out.name
			if sub.address.Sub == fsm.TransferQueue {
				_, name = q.transferTarget(sub.ix.Patch(at))
			}
			reason, description := transferFailure(codes[i], name)
			q.deadLetterFailed(sub, at, rec, totals.ForwardRefused, reason, description)
		}
	}
	sub.out = &outbox{serial: sub.out.serial, epoch: sub.out.epoch}
	q.notifyReady(sub)
	if sub.address.Sub == fsm.TransferQueue {
		sub.entity.lastActivity = q.times.Serving
		q.scheduleIdle(sub.entity)
	}
}

// deadLetterFailed dead-letters a message that cannot be forwarded: that of an entity with ForwardTo in the dead-letter queue,
// where it is held back from further forwarding, and that of a transaction in the transfer dead-letter queue.
func (q *forwarding) deadLetterFailed(sub *subqueue, at index.Cursor, rec index.Record, why totals.Reason, reason, description string) {
	to := &sub.entity.subs[fsm.TransferDeadLetterQueue]
	if sub.address.Sub == fsm.MainQueue {
		to = &sub.entity.subs[fsm.DeadLetterQueue]
		rec.Hold()
	}
	q.moveToSubQueue(sub, to, at, rec, fsm.Patch{DeadLetter: true, Reason: reason, Description: description}, why)
}

// transferFailure returns the reason and description of a message that the destination of that name refused.
func transferFailure(code fsm.Code, name string) (reason, description string) {
	for _, x := range [...]struct {
		code                fsm.Code
		reason, description string
	}{
		{fsm.MessageTooLarge, "MessageSizeExceeded", "The destination %s accepts no message of this size."},
		{fsm.QuotaExceeded, "QuotaExceeded", "The destination %s holds as much as it may."},
		{fsm.EntityNotFound, "MessagingEntityNotFound", "The destination %s does not exist."},
		{fsm.EntityDisabled, "MessagingEntityDisabled", "The destination %s is disabled for sending."},
		{fsm.NotAllowed, reasonNoSession, "The destination %s requires sessions, and the message has no session id."},
	} {
		if x.code == code {
			return x.reason, fmt.Sprintf(x.description, name)
		}
	}
	return "TransferFailed", fmt.Sprintf("The destination %s refused the message with code %d.", name, code)
}

// takeBatch takes the oldest ready messages after c.After into a batch, without those that have expired or were
// forwarded too often; if there are very many of these, or they are large, the rest is left to the
// next entry. A batch of a transfer queue has one destination.
func (q *forwarding) takeBatch(sub *subqueue, c *fsm.ForwardMessages) {
	numbers := make([]fsm.SequenceNumber, 0, min(uint64(c.Max), sub.ix.Count(fsm.Ready)))
	size, aside, to, next := uint64(0), 0, c.To, c.After+1
	for len(numbers) < int(c.Max) {
		at, found := sub.ix.NextHeld(next, false)
		if !found {
			break
		}
		next = sub.ix.Number(at) + 1
		rec := sub.ix.Get(at)
		expired := sub.ix.Expired(&rec, q.times.Wall)
		if expired || rec.Hops() >= fsm.HopsMax {
			if aside == fsm.PulseMessagesMax || q.isAsideFull() {
				q.notifyReady(sub)
				break
			}
			aside++
			before := q.bodies.appended
			switch {
			case expired:
				q.expire(sub, at, rec, fsm.Patch{})
			case sub.address.Sub == fsm.DeadLetterQueue:
				rec.Hold()
				sub.ix.Set(at, rec)
				q.notifyReady(sub)
			default:
				q.deadLetterFailed(sub, at, rec, totals.TooManyHops, reasonHops, fmt.Sprintf(descriptionHops, sub.destination(), rec.Hops()))
			}
			q.setAside += q.bodies.appended - before
			continue
		}
		if sub.address.Sub == fsm.TransferQueue {
			its, _ := q.transferTarget(sub.ix.Patch(at))
			if len(numbers) > 0 && its != to {
				break
			}
			to = its
		}
		// Patches are sent too.
		if size += rec.Size() + uint64(sub.ix.Patch(at).Size); size > uint64(c.MaxBytes) && len(numbers) > 0 {
			break
		}
		numbers = append(numbers, sub.ix.Number(at))
		rec.Forward()
		sub.ix.Set(at, rec)
	}
	if len(numbers) == 0 {
		return
	}
	out := &outbox{serial: 1, epoch: q.epoch, to: to, name: sub.destination(), numbers: numbers}
	if sub.out != nil {
		out.serial += sub.out.serial
	}
	sub.out = out
}

// isAsideFull reports whether the current entry has stored as many bytes of messages that cannot be
// forwarded as it may: their patches are written again.
func (q *forwarding) isAsideFull() bool {
	return q.setAside >= setAsideBytesMax
}

// batchResult returns the batch in flight.
func (q *forwarding) batchResult(sub *subqueue) fsm.Result {
	if !sub.out.hasBatch() {
		return fsm.Result{}
	}
	res := fsm.Result{Serial: sub.out.serial, Epoch: sub.out.epoch, To: sub.out.to, Deliveries: make([]fsm.Delivery, len(sub.out.numbers))}
	for i, n := range sub.out.numbers {
		at, _ := sub.ix.Seek(n)
		rec := sub.ix.Get(at)
		res.Deliveries[i] = q.delivery(sub, at, &rec)
	}
	return res
}

// Outboxes returns every sub-queue that has a batch in flight or messages to forward, in the order
// of their addresses. A new leader begins with them: an [EffectForward] may be lost with the old
// leader.
func (q *forwarding) Outboxes() []fsm.Address {
	var list []fsm.Address
	for _, x := range q.entities {
		for i := range x.subs {
			if sub := &x.subs[i]; sub.out.hasBatch() || sub.readyToForward() > 0 {
				list = append(list, sub.address)
			}
		}
	}
	return list
}

// Outbox reports whether a sub-queue has a batch in flight and its destination, and the name to
// which its settings forward messages, "" for none and for a transfer queue, whose messages have
// destinations of their own. ok is false if there is no such sub-queue or nothing is ever forwarded
// from it.
func (q *forwarding) Outbox(a fsm.Address) (out bool, to fsm.Destination, wants string, ok bool) {
	sub := q.forwardSource(a)
	if sub == nil {
		return false, fsm.Destination{}, "", false
	}
	if sub.out.hasBatch() {
		out, to = true, sub.out.to
	}
	return out, to, sub.destination(), true
}

// beginEpoch begins an epoch. A batch in flight that gets the new epoch was received before under a
// serial of the source's former life, or was not: it can arrive twice and is never lost.
func (q *forwarding) beginEpoch(c *fsm.BeginEpoch) fsm.Code {
	if code := c.Check(); code != fsm.OK {
		return code
	}
	if c.Serial == 0 {
		q.epoch = c.Epoch
		return fsm.OK
	}
	sub := q.forwardSource(c.Address)
	if sub == nil || !sub.out.hasBatch() || sub.out.serial != c.Serial || sub.out.epoch != c.Replaces {
		return fsm.OK
	}
	out := *sub.out
	out.epoch = c.Epoch
	sub.out, q.epoch = &out, c.Epoch
	return fsm.OK
}
