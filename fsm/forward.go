package fsm

import (
	"fmt"
	"strings"
)

// hopsMax is how often a message is forwarded at most: what it takes to end a ring of
// entities that forward to each other.
const hopsMax = 4

// What a message is dead-lettered with that was forwarded hopsMax times; the reason is
// that of the cloud.
const (
	reasonHops      = "MaxTransferHopCountExceeded"
	descriptionHops = "The message was forwarded %d times, which is as often as a message may be."
)

// outbox is the batch of a sub-queue that is being forwarded. It is replaced and never
// changed, because images share it.
type outbox struct {
	serial uint64      // of the newest batch
	to     Destination // of the batch that is out
	// numbers are the messages of the batch that is out, rising: all that are Forwarding. There
	// are none when no batch is out.
	numbers []SequenceNumber
}

// hasBatch says whether a batch is out.
func (o *outbox) hasBatch() bool { return o != nil && len(o.numbers) > 0 }

// destination is the name of what the messages of a sub-queue are sent on to, "" for
// nothing.
func (sub *subqueue) destination() string {
	if sub.address.Sub == MainQueue {
		return sub.entity.settings.ForwardTo
	}
	if sub.address.Sub == DeadLetterQueue {
		return sub.entity.settings.ForwardDeadLettersTo
	}
	return ""
}

// reportsForwarding says whether effects of this sub-queue concern forwarding.
func (sub *subqueue) reportsForwarding() bool { return sub.resumed || sub.forwardsReady() }

// forwardsReady says whether what is ready here goes elsewhere.
func (sub *subqueue) forwardsReady() bool {
	return sub.address.Sub == TransferQueue || sub.destination() != ""
}

// canForward says whether messages may be forwarded from such a sub-queue.
func (a Address) canForward() bool { return a.Sub <= DeadLetterQueue || a.Sub == TransferQueue }

// forwardSource finds a sub-queue that messages may be forwarded from.
func (q *Queues) forwardSource(a Address) *subqueue {
	if x := q.byID[a.Entity]; x != nil && a.canForward() {
		return &x.subs[a.Sub]
	}
	return nil
}

// awaitingTransfer counts the messages that are under way or wait to be.
func (sub *subqueue) awaitingTransfer() uint64 {
	n := sub.ix.counts[Forwarding]
	if sub.forwardsReady() {
		n += sub.ix.counts[Ready]
	}
	return n
}

// storedCount counts the messages that were not given for good.
func (sub *subqueue) storedCount() uint64 { return sub.ix.total() - sub.ix.counts[Deleting] }

// notifyForward adds what the leader is asked about forwarding. A batch that is out needs no
// urging, unless whoever saw to it went with the last process.
func (sub *subqueue) notifyForward(effects []Effect) []Effect {
	resumed := sub.resumed
	sub.resumed = false
	ready := sub.ix.counts[Ready]
	if sub.out.hasBatch() && !resumed || !sub.out.hasBatch() && ready == 0 {
		return effects
	}
	return append(effects, Effect{Address: sub.address, Ready: ready, Kind: EffectForward})
}

// notifyRedirected sees to it that the leader hears of messages that wait for somebody else now.
func (q *Queues) notifyRedirected(x *entityState, old *EntitySettings) {
	if old != nil && old.ForwardTo != x.settings.ForwardTo {
		q.notifyReady(&x.subs[MainQueue])
	}
	if old != nil && old.ForwardDeadLettersTo != x.settings.ForwardDeadLettersTo {
		q.notifyReady(&x.subs[DeadLetterQueue])
	}
}

// validForward says whether a ForwardMessages keeps the limits.
func validForward(c *ForwardMessages) bool {
	if !c.Address.canForward() || len(c.Codes) > commandMessagesMax || c.Done == 0 && len(c.Codes) > 0 {
		return false
	}
	return c.To == (Destination{}) ||
		c.To.Partition != CatalogPartition && c.To.Entity != 0 && within(int(c.Max), commandMessagesMax)
}

// forward ends the batch that is out, if the command says how it fared, and takes the
// next one, if the command says where it goes.
func (q *Queues) forward(c *ForwardMessages) Result {
	if !validForward(c) {
		return Result{Code: InvalidArgument}
	}
	sub := q.forwardSource(c.Address)
	if sub == nil {
		return Result{Code: EntityNotFound}
	}
	if sub.out.hasBatch() && sub.out.serial == c.Done {
		if len(c.Codes) != 0 && len(c.Codes) != len(sub.out.numbers) {
			return Result{Code: InvalidArgument}
		}
		q.endBatch(sub, c.Codes)
	}
	if !sub.out.hasBatch() && sub.forwardsReady() && c.To != (Destination{}) {
		q.takeBatch(sub, c)
	}
	for i := range sub.entity.subs {
		q.removeStaleTimers(&sub.entity.subs[i])
	}
	return q.batchResult(sub)
}

// endBatch ends the batch that is out. What could not be delivered goes to the transfer
// dead-letter queue: it must not stand in the way of what can.
func (q *Queues) endBatch(sub *subqueue, codes []Code) {
	to := &sub.entity.subs[TransferDeadLetterQueue]
	for i, n := range sub.out.numbers {
		at, _ := sub.ix.seek(n)
		rec := sub.ix.get(at)
		if len(codes) == 0 || codes[i] == OK {
			q.deleteMessage(sub, at, &rec)
			continue
		}
		reason, description := transferFailure(codes[i])
		if sub.address.Sub == TransferQueue {
			_, name := q.transferTarget(sub.ix.patch(at))
			description = strings.Replace(description, theDestination, theDestination+" "+name, 1)
		}
		q.moveToSubQueue(sub, to, at, rec, Patch{DeadLetter: true, Reason: reason, Description: description})
	}
	sub.out = &outbox{serial: sub.out.serial}
	q.notifyReady(sub)
	if sub.address.Sub == TransferQueue {
		sub.entity.lastActivity = q.clock
		q.scheduleIdle(sub.entity)
	}
}

// theDestination is what the descriptions of failures call it.
const theDestination = "The destination"

// transferFailure is what a message is dead-lettered with whose destination refused it.
func transferFailure(code Code) (reason, description string) {
	for _, x := range [...]struct {
		code                Code
		reason, description string
	}{
		{MessageTooLarge, "MessageSizeExceeded", theDestination + " accepts no message of this size."},
		{QuotaExceeded, "QuotaExceeded", theDestination + " holds as much as it may."},
		{EntityNotFound, "MessagingEntityNotFound", theDestination + " does not exist."},
		{EntityDisabled, "MessagingEntityDisabled", theDestination + " is disabled for sending."},
	} {
		if x.code == code {
			return x.reason, x.description
		}
	}
	return "TransferFailed", fmt.Sprintf("%s refused the message with code %d.", theDestination, code)
}

// takeBatch takes the oldest ready messages into a batch. What has expired is not taken, nor
// what was forwarded too often; when there is very much of that, the rest is left to the
// next time. From a transfer queue those are taken that go to one destination.
func (q *Queues) takeBatch(sub *subqueue, c *ForwardMessages) {
	numbers := make([]SequenceNumber, 0, min(uint64(c.Max), sub.ix.counts[Ready]))
	size, aside, to := uint64(0), 0, c.To
	for len(numbers) < int(c.Max) {
		at, found := sub.ix.firstReady()
		if !found {
			break
		}
		rec := sub.ix.get(at)
		expired := q.expired(sub, &rec)
		if expired || rec.flags.hops() >= hopsMax {
			if aside == pulseMessagesMax {
				q.notifyReady(sub)
				break
			}
			if aside++; expired {
				q.expire(sub, at, rec, Patch{})
			} else {
				q.deadLetterHops(sub, at, rec)
			}
			continue
		}
		if sub.address.Sub == TransferQueue {
			its, _ := q.transferTarget(sub.ix.patch(at))
			if len(numbers) > 0 && its != to {
				break
			}
			to = its
		}
		// Patches travel too.
		if size += uint64(rec.body.Size) + uint64(sub.ix.patch(at).Size); size > uint64(c.MaxBytes) && len(numbers) > 0 {
			break
		}
		numbers = append(numbers, sub.ix.number(at))
		rec.state = Forwarding
		sub.ix.set(at, rec)
	}
	if len(numbers) == 0 {
		return
	}
	next := &outbox{serial: 1, to: to, numbers: numbers}
	if sub.out != nil {
		next.serial += sub.out.serial
	}
	sub.out = next
}

// deadLetterHops dead-letters a message that was forwarded as often as it may be.
func (q *Queues) deadLetterHops(sub *subqueue, at cursor, rec record) {
	to := &sub.entity.subs[sub.address.Sub+1]
	description := fmt.Sprintf(descriptionHops, rec.flags.hops())
	q.moveToSubQueue(sub, to, at, rec, Patch{DeadLetter: true, Reason: reasonHops, Description: description})
}

// batchResult is the answer that shows the batch that is out.
func (q *Queues) batchResult(sub *subqueue) Result {
	if !sub.out.hasBatch() {
		return Result{}
	}
	res := Result{Serial: sub.out.serial, To: sub.out.to, Deliveries: make([]Delivery, len(sub.out.numbers))}
	for i, n := range sub.out.numbers {
		at, _ := sub.ix.seek(n)
		rec := sub.ix.get(at)
		res.Deliveries[i] = sub.delivery(at, &rec)
	}
	return res
}

// Outboxes returns every sub-queue that has a batch out, or something to forward, in the
// order of their addresses. A new leader begins with them: an [EffectForward] may be lost
// with the old one.
func (q *Queues) Outboxes() []Address {
	var list []Address
	for _, x := range q.entities {
		for i := range x.subs {
			if sub := &x.subs[i]; sub.out.hasBatch() || sub.forwardsReady() && sub.ix.counts[Ready] > 0 {
				list = append(list, sub.address)
			}
		}
	}
	return list
}

// Outbox says of a sub-queue whether a batch is out and where that goes, and the name of
// what its settings want messages to be forwarded to, "" for nothing and for a transfer
// queue, whose messages know themselves where they go. It is not ok when
// there is no such sub-queue or nothing is ever forwarded from it.
func (q *Queues) Outbox(a Address) (out bool, to Destination, wants string, ok bool) {
	sub := q.forwardSource(a)
	if sub == nil {
		return false, Destination{}, "", false
	}
	if sub.out.hasBatch() {
		out, to = true, sub.out.to
	}
	return out, to, sub.destination(), true
}
