package queue

import (
	"fmt"
	"strconv"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/fsm/totals"
)

// Bounds of what settlements write in one entry.
const (
	// rewriteBytesMax bounds the patches that settlements, redrives, ends of sessions, and messages that expire outside
	// of pulses make one entry read and write again: once an entry has rewritten so
	// many bytes, it begins no further such message.
	rewriteBytesMax = 8 << 20
	// addedBytesMax bounds the properties and reasons that settlements add to messages in one entry, those that they
	// share counted for each: once an entry has added so many bytes, it begins no further such settlement. A
	// command holds an outcome once for all its locks.
	addedBytesMax = 32 << 20
)

// Reason and description of a message that reached MaxDeliveryCount, exactly as in Azure Service
// Bus.
const (
	reasonDeliveryCount      = "MaxDeliveryCountExceeded"
	descriptionDeliveryCount = "Message could not be consumed after %s delivery attempts."
)

// Reason and description of expired messages that are dead-lettered, exactly as in Azure Service
// Bus (docs/requirements.md#e5).
const (
	reasonExpired      = "TTLExpiredException"
	descriptionExpired = "The message expired and was dead lettered."
)

// Reason and description of a message without a session that was forwarded to an entity with
// sessions, exactly as in Azure Service Bus.
const (
	reasonNoSession      = "Session ID is null"
	descriptionNoSession = "Session enabled entity doesn't allow a message whose session identifier is null."
)

// messages moves, changes and deletes single messages.
type messages struct {
	*core

	rewritten uint64 // bytes of patches that settlements of the current entry rewrote
	added     uint64 // bytes of properties and reasons that they added
}

// deleteMessage deletes a message, and counts it in the total that says why. The caller ends its lock.
func (q *messages) deleteMessage(sub *subqueue, at index.Cursor, rec *index.Record, total *uint64) {
	*total++
	if patch := sub.ix.Patch(at); !rec.IsCopy() {
		q.releaseBodies(rec.Body(), patch)
	} else {
		q.releaseCopy(sub.entity.topic, rec.OriginalNumber())
		if patch != (fsm.Ref{}) {
			q.bodies.Release(patch)
		}
	}
	sub.ix.Remove(at)
}

// releaseCopy decrements the number of copies; the last one deletes the message of the topic.
func (q *messages) releaseCopy(topic *entityState, n fsm.SequenceNumber) {
	ix := &topic.subs[fsm.MainQueue].ix
	at, _ := ix.Seek(n)
	if !ix.ReleaseCopy(at) {
		return
	}
	rec := ix.Get(at)
	q.bodies.Release(rec.Body())
	ix.Remove(at)
}

// expire moves an expired message that is not locked to the dead-letter queue, or deletes it. The
// patch is that of the settlement that ended its lock, if one did.
func (q *messages) expire(sub *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch) {
	if !sub.keepsExpired() {
		q.deleteMessage(sub, at, &rec, &sub.entity.totals.Expired)
		return
	}
	patch.DeadLetter, patch.Reason, patch.Description = true, reasonExpired, descriptionExpired
	q.deadLetter(sub.entity, at, rec, patch, totals.TimeToLive)
}

// mayExpire reports whether an expired message is deleted, or the entry may rewrite its patches.
func (q *messages) mayExpire(sub *subqueue, at index.Cursor) bool {
	return !sub.keepsExpired() || q.mayRewritePatches(sub, at)
}

// mayRewrite reports whether a settlement leaves the patches of its message as they are, or the entry
// may rewrite them and add those of the settlement, whose bytes it counts for each lock.
func (q *messages) mayRewrite(sub *subqueue, at index.Cursor, rec *index.Record, s *fsm.Settlement) bool {
	if !q.addsPatch(sub, rec, s) {
		return true
	}
	if q.added >= addedBytesMax || !q.mayRewritePatches(sub, at) {
		return false
	}
	q.added += uint64(len(s.Properties) + len(s.Reason) + len(s.Description))
	return true
}

// mayRewritePatches reports whether the entry may rewrite the patches of a message, and counts their
// bytes: all patches of a message are one body, up to a MiB, which is read and written again.
func (q *messages) mayRewritePatches(sub *subqueue, at index.Cursor) bool {
	size := uint64(sub.ix.Patch(at).Size)
	if size == 0 {
		return true
	}
	if q.rewritten >= rewriteBytesMax {
		return false
	}
	q.rewritten += size
	return true
}

// addsPatch reports whether a settlement can add a patch to its message: properties, or a reason why
// it is dead-lettered.
func (q *messages) addsPatch(sub *subqueue, rec *index.Record, s *fsm.Settlement) bool {
	if s.Verb == fsm.Complete {
		return false
	}
	counts, returns := s.Verb == fsm.Abandon || s.Verb == fsm.Defer, s.Verb == fsm.Abandon || s.Verb == fsm.Release
	return len(s.Properties)+len(s.Reason)+len(s.Description) > 0 ||
		counts && sub.reachesMaxDeliveries(uint32(rec.FailedDeliveries())+1) || returns && sub.keepsExpired() && sub.ix.Expired(rec, q.times.Wall)
}

// countDelivery counts a delivery that did not settle the message, and reports whether it was the last one allowed.
// Only the main queue counts.
func (q *messages) countDelivery(sub *subqueue, rec *index.Record) (last bool) {
	if sub.address.Sub == fsm.MainQueue {
		rec.CountFailedDelivery()
	}
	return sub.reachesMaxDeliveries(uint32(rec.FailedDeliveries()))
}

// deadLetterExceeded moves a message to the dead-letter queue because it was delivered too often.
func (q *messages) deadLetterExceeded(sub *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch) {
	patch.DeadLetter, patch.Reason = true, reasonDeliveryCount
	patch.Description = fmt.Sprintf(descriptionDeliveryCount, strconv.Itoa(int(rec.FailedDeliveries())))
	q.deadLetter(sub.entity, at, rec, patch, totals.TooManyDeliveries)
}

// returnToQueue ends a lock without settling the message: the message returns to where it was
// locked, at once or after a delay. An expired message expires now (docs/requirements.md#e3). A
// failed delivery is counted, and the last one allowed sends the message to the dead-letter queue
// instead, in the same apply.
func (q *messages) returnToQueue(sub *subqueue, at index.Cursor, rec index.Record, failed bool, until fsm.Instant, patch fsm.Patch) {
	last := failed && q.countDelivery(sub, &rec)
	if sub.ix.Expired(&rec, q.times.Wall) {
		q.expire(sub, at, rec, patch)
		return
	}
	if last {
		q.deadLetterExceeded(sub, at, rec, patch)
		return
	}
	rec.Return()
	if rec.IsFromDeferred() {
		rec.Defer()
	} else if until = q.retryAt(sub, &rec, failed, until); until > q.times.Wall {
		rec.Delay(until)
	}
	sub.ix.Set(at, rec)
	q.addPatch(sub, at, patch)
	if rec.State() == fsm.Ready {
		q.notifyReady(sub)
	}
}

// retryAt returns the time until which a returned message waits: what the receiver requested, or
// the queue's delay after a failed delivery, doubled with every failure. A time that is not in the
// future means that the message is ready at once.
func (q *messages) retryAt(sub *subqueue, rec *index.Record, failed bool, until fsm.Instant) fsm.Instant {
	s := sub.entity.settings
	if until > q.times.Wall || !failed || s.RetryDelay == 0 || sub.address.Sub != fsm.MainQueue {
		return until
	}
	delay := s.RetryDelay
	for i := uint16(1); i < rec.FailedDeliveries() && delay < s.RetryDelayMax; i++ {
		delay *= 2 // at most twice DelayMax: no overflow
	}
	return q.times.Wall.After(min(delay, s.RetryDelayMax))
}

// deadLetter moves a message from the main queue to the dead-letter queue.
func (q *messages) deadLetter(x *entityState, at index.Cursor, rec index.Record, patch fsm.Patch, reason totals.Reason) {
	q.moveToSubQueue(&x.subs[fsm.MainQueue], &x.subs[fsm.DeadLetterQueue], at, rec, patch, reason)
}

// moveToSubQueue moves a message to a dead-letter queue of its entity, where it is ready under its
// old number, see moveNumber, with its old failed deliveries. Its body stays where it is: the owner stored beside it
// still names the old sub-queue, and [Machine.Holds] takes that into account.
func (q *messages) moveToSubQueue(from, to *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch, reason totals.Reason) {
	to.entity.totals.DeadLettered[reason]++
	n, patches, session := from.ix.Number(at), from.ix.Patch(at), from.ix.Session(at)
	from.entity.sessions.pin(session)
	defer from.entity.sessions.unpin(session, *q.arena.Generation())
	from.ix.Remove(at)
	rec.MoveToDeadLetters(q.times.Wall, to.entity.settings.DeadLetterTimeToLive)
	moved := q.moveNumber(to, n, &rec)
	at = to.ix.Insert(moved, rec, session)
	if patches != (fsm.Ref{}) {
		if moved != n {
			patches = q.rewriteBody(fsm.Owner{Address: to.address, Sequence: moved, Patch: true}, patches)
		}
		to.ix.SetPatch(at, patches)
	}
	q.addPatch(to, at, patch)
	q.notifyReady(to)
}

// moveNumber returns the number under which a message moves to another sub-queue of its entity: its own, or the next one
// if a message there has it. No command leads to that (see usableNumber), and if one did, no message would be lost. A new
// number needs a new owner beside the body.
func (q *messages) moveNumber(to *subqueue, n fsm.SequenceNumber, rec *index.Record) fsm.SequenceNumber {
	if _, taken := to.ix.Seek(n); !taken {
		return n
	}
	to.entity.last++
	n = to.entity.last
	if !rec.IsCopy() {
		rec.SetBody(q.rewriteBody(fsm.Owner{Address: to.address, Sequence: n}, rec.Body()))
	}
	return n
}

// rewriteBody writes a body again for another owner, and returns where it is.
func (q *messages) rewriteBody(owner fsm.Owner, old fsm.Ref) fsm.Ref {
	body := q.bodies.Append(owner, q.bodies.Read(old))
	q.bodies.Release(old)
	return body
}

// addPatch adds a patch to a message. All patches of a message are one body, which is rewritten: it
// happens rarely, and the record stays small.
func (q *messages) addPatch(sub *subqueue, at index.Cursor, p fsm.Patch) {
	if !p.DeadLetter && len(p.Properties) == 0 {
		return
	}
	old := sub.ix.Patch(at)
	var body []byte
	if old != (fsm.Ref{}) {
		body = q.bodies.Read(old)
	}
	body = fsm.JoinPatches(body, &p)
	owner := fsm.Owner{Address: sub.address, Sequence: sub.ix.Number(at), Patch: true}
	sub.ix.SetPatch(at, q.bodies.Append(owner, body))
	if old != (fsm.Ref{}) {
		q.bodies.Release(old)
	}
}

// patches reads the patches of a message.
func (q *messages) patches(at fsm.Ref) []fsm.Patch {
	list, err := fsm.DecodePatches(q.bodies.Read(at))
	if err != nil {
		panic(unreadable(at, err))
	}
	return list
}

// storePatches stores the patches of a new message.
func (q *messages) storePatches(sub *subqueue, at index.Cursor, patches []byte) {
	if len(patches) > 0 {
		owner := fsm.Owner{Address: sub.address, Sequence: sub.ix.Number(at), Patch: true}
		sub.ix.SetPatch(at, q.bodies.Append(owner, patches))
	}
}

// delivery returns the message at a cursor as a delivery.
func (q *messages) delivery(sub *subqueue, at index.Cursor, rec *index.Record) fsm.Delivery {
	return q.newDelivery(sub, sub.ix.Number(at), rec, sub.ix.Patch(at))
}

func (q *messages) newDelivery(sub *subqueue, n fsm.SequenceNumber, rec *index.Record, patch fsm.Ref) fsm.Delivery {
	d := fsm.Delivery{
		Lock:             fsm.LockID{Sequence: n, Epoch: rec.Epoch()},
		State:            rec.State(),
		FailedDeliveries: uint32(rec.FailedDeliveries()),
		Enqueued:         rec.Enqueued(),
		Body:             rec.Body(),
		Patch:            patch,
		Hops:             rec.Hops(),
	}
	if rec.IsCopy() {
		d.Body, d.Topic = sub.sharedBody(rec)
	}
	switch {
	case sub.address.Sub != fsm.MainQueue:
	case rec.State() == fsm.Scheduled && !rec.IsDelayed():
		d.Expires = rec.Deadline().Expiry(sub.entity.effectiveTimeToLive(rec.Life()))
	default:
		d.Expires = rec.Expires()
	}
	if rec.State() == fsm.Locked {
		d.LockedUntil = q.times.OnWall(sub.lockEnd(n, rec))
	}
	return d
}

// forgetAnswer deletes the messages of a receive-and-delete whose answer is known to have arrived,
// or will not be asked for again.
func (q *messages) forgetAnswer(more *answers.Details) {
	if !more.Deleting {
		return
	}
	sub := q.subqueueAt(more.Address)
	if sub == nil {
		return
	}
	for _, l := range more.Locks {
		if at, found := sub.ix.Seek(l.Sequence); found {
			if rec := sub.ix.Get(at); rec.State() == fsm.Deleting && rec.Epoch() == l.Epoch {
				q.deleteMessage(sub, at, &rec, &sub.entity.totals.Completed)
			}
		}
	}
}

// sessionSlot returns the slot of a session, which is added if necessary: index.Sessionless and false for
// none.
func (q *messages) sessionSlot(x *entityState, session []byte, has bool) (slot uint32, ok bool) {
	if !has {
		return index.Sessionless, false
	}
	if slot, found := x.sessions.slots[string(session)]; found {
		return slot, true
	}
	if slot, ok = x.sessions.findOrAdd(string(session), *q.arena.Generation()); !ok {
		return index.Sessionless, false
	}
	return slot, true
}

// messageSession returns the slot of the session of an admitted message, index.NoSession if the entity
// has no sessions.
func (q *messages) messageSession(x *entityState, m *sentMessage) uint32 {
	if x.sessions == nil {
		return index.NoSession
	}
	slot, _ := q.sessionSlot(x, m.session, m.hasSession)
	return slot
}

// deadLetterSessionless dead-letters a message without a session that cannot be refused. Its number
// is the last one assigned.
func (q *messages) deadLetterSessionless(x *entityState, rec index.Record, patches []byte) {
	sub := &x.subs[fsm.DeadLetterQueue]
	x.totals.DeadLettered[totals.NoSession]++
	rec.SetDeadLetterExpiry(q.times.Wall, x.settings.DeadLetterTimeToLive)
	at := sub.ix.Insert(x.last, rec, index.Sessionless)
	q.storePatches(sub, at, fsm.JoinPatches(patches, &fsm.Patch{DeadLetter: true, Reason: reasonNoSession, Description: descriptionNoSession}))
	q.notifyReady(sub)
}

// transferTarget returns the destination of a message of a transfer queue, from its patches.
func (q *messages) transferTarget(patches fsm.Ref) (to fsm.Destination, name string) {
	for _, p := range q.patches(patches) {
		if p.To != (fsm.Destination{}) {
			return p.To, p.ToName
		}
	}
	panic(fmt.Sprintf("fsm: the message with patches at %v is to be transferred nowhere", patches))
}

// peeked returns a message as a peek shows it: one that was fetched by number remains deferred.
func (q *messages) peeked(sub *subqueue, n fsm.SequenceNumber, rec *index.Record, patch fsm.Ref) fsm.Delivery {
	d := q.newDelivery(sub, n, rec, patch)
	if rec.State() == fsm.Locked && rec.IsFromDeferred() {
		d.State = fsm.Deferred
	}
	return d
}

// sharedBody returns the location of the body of a copy, and its number at the topic.
func (sub *subqueue) sharedBody(rec *index.Record) (fsm.Ref, fsm.SequenceNumber) {
	ix, n := &sub.entity.topic.subs[fsm.MainQueue].ix, rec.OriginalNumber()
	at, _ := ix.Seek(n)
	original := ix.Get(at)
	return original.Body(), n
}

// reachesMaxDeliveries reports whether a message with so many failed deliveries is dead-lettered. Other
// sub-queues than the main queue allow any number.
func (sub *subqueue) reachesMaxDeliveries(failed uint32) bool {
	return sub.address.Sub == fsm.MainQueue && failed >= sub.entity.settings.MaxDeliveryCount
}

// lockEnd returns the end of the lock of a message.
func (sub *subqueue) lockEnd(n fsm.SequenceNumber, rec *index.Record) fsm.Instant {
	if !sub.ix.DeliversBySession() {
		return rec.Deadline()
	}
	at, _ := sub.ix.Seek(n)
	return sub.entity.sessions.at(sub.ix.Session(at)).until
}

func unreadable(at fsm.Ref, err error) string {
	return fmt.Sprintf("fsm: body at %v is not what was written there: %v", at, err)
}

// peekMax is the maximum number of messages of one Peek.
const peekMax = 4096
