package queue

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
	"github.com/peeklock/peeklock/fsm/index"
)

// Limits of messages that are forwarded to one entity.
const (
	// transferSourcesMax is the number of sources whose last batch an entity remembers.
	transferSourcesMax = 10_000
	// transferMemory is the minimum time for which the last batch of a source is remembered. A
	// source repeats a batch until it is answered, so this is how long it may be disconnected.
	transferMemory = fsm.Millis(30 * 24 * 60 * 60 * 1000)
	// formerEpochsMax is the number of epochs of a source before its last one whose batches are still
	// known to be late copies. A copy is minutes late at most, and an epoch ends with a restore.
	formerEpochsMax = 8
	// transferPatchesBytesMax bounds the patches of a forwarded message: it has room for the
	// properties and reasons of HopsMax entities.
	transferPatchesBytesMax = 1 << 20
)

// sourceBatch is the last batch that was accepted from a source.
type sourceBatch struct {
	from    fsm.Outbox
	epoch   uint64   // of the batch, see BeginEpoch
	former  []uint64 // epochs of the source before this one, oldest first; immutable, images share it
	serial  uint64
	numbers uint64      // hash of the sequence numbers of the messages at the source, never 0
	at      fsm.Instant // time of arrival, in serving time
	count   uint16      // messages
	refused fsm.Code    // refusal of the whole batch; OK if the messages were accepted or refused one by one
	codes   []fsm.Code  // one per message if not all are OK; immutable, images share it
}

// result returns the answer to a repeated batch.
func (a *sourceBatch) result() fsm.Result {
	switch {
	case a.refused != fsm.OK:
		return fsm.Result{Code: a.refused}
	case a.codes == nil:
		return fsm.Result{Codes: make([]fsm.Code, a.count)}
	}
	return fsm.Result{Codes: slices.Clone(a.codes)}
}

// isOutdated reports whether a batch of the same source can no longer be accepted: it is older than
// this one, or another under the same serial.
func (a *sourceBatch) isOutdated(batch *sourceBatch) bool {
	if batch.epoch != a.epoch {
		return slices.Contains(a.former, batch.epoch)
	}
	return batch.serial < a.serial || batch.serial == a.serial && batch.numbers != a.numbers
}

// epochsUntil returns the former epochs of a source after a batch of the given epoch: the newest
// formerEpochsMax.
func (a *sourceBatch) epochsUntil(epoch uint64) []uint64 {
	if epoch == a.epoch {
		return a.former
	}
	former := append(slices.Clone(a.former), a.epoch)
	return former[max(0, len(former)-formerEpochsMax):]
}

// haveNumbers reports whether all messages have sequence numbers of their source, which rise.
func haveNumbers(messages []sentMessage) bool {
	before := fsm.SequenceNumber(0)
	for i := range messages {
		if messages[i].number <= before {
			return false
		}
		before = messages[i].number
	}
	return true
}

// hashNumbers returns a hash of the sequence numbers of messages at their source, never 0.
func hashNumbers(messages []sentMessage) uint64 {
	h := xxhash.New()
	var b [8]byte
	for i := range messages {
		binary.LittleEndian.PutUint64(b[:], uint64(messages[i].number))
		_, _ = h.Write(b[:]) // a hash never fails
	}
	return max(1, h.Sum64())
}

// sourceBatches makes forwarding exactly-once at the destination. It is bounded by
// transferSourcesMax.
type sourceBatches struct {
	generation image.Generation // of the slice list
	list       []sourceBatch    // sorted by source
}

func (a *sourceBatches) find(from fsm.Outbox) (int, bool) {
	return slices.BinarySearchFunc(a.list, from, func(x sourceBatch, from fsm.Outbox) int { return x.from.Compare(from) })
}

// reserve makes room for a new source by forgetting sources that were silent for transferMemory. It
// returns false if there is none.
func (a *sourceBatches) reserve(from fsm.Outbox, now fsm.Instant, current image.Generation) bool {
	if _, found := a.find(from); found {
		return true
	}
	silent := func(x sourceBatch) bool { return x.at.After(transferMemory) <= now }
	if slices.ContainsFunc(a.list, silent) {
		a.own(current)
		a.list = slices.DeleteFunc(a.list, silent)
	}
	return len(a.list) < transferSourcesMax
}

// own copies the list if an image may share it.
func (a *sourceBatches) own(current image.Generation) {
	if a.generation != current {
		a.list, a.generation = slices.Clone(a.list), current
	}
}

// record remembers a batch instead of the previous one of its source.
func (a *sourceBatches) record(x sourceBatch, current image.Generation) {
	a.own(current)
	if i, found := a.find(x.from); found {
		a.list[i] = x
	} else {
		a.list = slices.Insert(a.list, i, x)
	}
}

// transfer stores a batch that another entity forwards, exactly once. A refusal because the entity
// is disabled is remembered like any other answer: the source dead-letters the batch because of it,
// so a late copy of the command must not be accepted.
func (q *sending) transfer(c *fsm.TransferMessages, messages []sentMessage) fsm.Result {
	if !fsm.ValidTransfer(c, len(messages)) || !haveNumbers(messages) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	x := q.byID[c.Entity]
	if x == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if x.kind == fsm.SubscriptionEntity {
		return fsm.Result{Code: fsm.NotAllowed}
	}
	if code := x.fenced(); code != fsm.OK {
		return fsm.Result{Code: code} // not remembered: the source repeats the batch
	}
	batch := sourceBatch{from: c.Source, epoch: c.Epoch, serial: c.Serial, at: q.times.Serving, count: uint16(len(messages)), numbers: hashNumbers(messages)}
	if i, found := x.sourceBatches.find(c.Source); found {
		last := &x.sourceBatches.list[i]
		if last.isOutdated(&batch) {
			return fsm.Result{Code: fsm.Stale, Serial: last.serial}
		}
		if batch.epoch == last.epoch && batch.serial == last.serial {
			return last.result()
		}
		batch.former = last.epochsUntil(batch.epoch)
	}
	if code := checkTransferred(c.Source.Address, messages); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	if !x.sourceBatches.reserve(c.Source, q.times.Serving, *q.arena.Generation()) {
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	if !x.settings.Status.AllowsSend() {
		batch.refused = fsm.EntityDisabled
		x.sourceBatches.record(batch, *q.arena.Generation())
		return fsm.Result{Code: fsm.EntityDisabled}
	}
	codes := q.storeTransferred(x, messages)
	if slices.ContainsFunc(codes, func(code fsm.Code) bool { return code != fsm.OK }) {
		batch.codes = slices.Clone(codes)
	}
	x.sourceBatches.record(batch, *q.arena.Generation())
	return fsm.Result{Codes: codes}
}

// checkTransferred checks all messages before anything is changed.
func checkTransferred(from fsm.Address, messages []sentMessage) fsm.Code {
	for i := range messages {
		m := &messages[i]
		if !fsm.ValidTransferred(from, len(m.id), len(m.session), m.ttl, m.hops, m.properties) || !fsm.ValidReservation(from, m.reserved, m.at, len(m.patches)) {
			return fsm.InvalidArgument
		}
		if _, err := fsm.DecodePatches(m.patches); err != nil {
			return fsm.InvalidArgument
		}
	}
	return fsm.OK
}

// storeTransferred stores messages, each independently, and returns their codes.
func (q *sending) storeTransferred(x *entityState, messages []sentMessage) []fsm.Code {
	codes := make([]fsm.Code, len(messages))
	for i := range messages {
		codes[i] = q.storeTransferredMessage(x, &messages[i])
	}
	q.finishStore(x, len(messages))
	return codes
}

// storeTransferredMessage stores a message as if it had been sent to this entity, unless it is a
// duplicate.
func (q *sending) storeTransferredMessage(x *entityState, m *sentMessage) fsm.Code {
	if x.sessions != nil && !m.hasSession {
		return fsm.NotAllowed
	}
	if uint64(len(m.payload)) > x.payloadMax() || len(m.patches) > transferPatchesBytesMax {
		return fsm.MessageTooLarge
	}
	detects := x.window != nil && len(m.id) > 0
	var key idKey
	if detects {
		key = keyOf(m.id)
		if x.window.contains(&key, q.times.Wall, x.settings.DuplicateWindow) {
			x.totals.Duplicates++
			return fsm.OK
		}
	}
	if !x.hasRoomFor(m) {
		return fsm.QuotaExceeded
	}
	if detects {
		x.window.remember(&key, q.times.Wall)
	}
	if m.reserved != 0 || m.at > q.times.Wall {
		m.reserved = x.usableNumber(m.reserved)
		q.storeOrPublish(x, m)
		return fsm.OK
	}
	if x.kind == fsm.TopicEntity {
		q.publish(x, m)
		return fsm.OK
	}
	sub := &x.subs[fsm.MainQueue]
	x.last++
	body := q.bodies.Append(fsm.Owner{Address: sub.address, Sequence: x.last}, m.payload)
	rec := index.Enqueued(body, q.times.Wall, q.times.Wall.Expiry(x.effectiveTimeToLive(m.ttl)))
	rec.SetHops(m.hops)
	at := sub.ix.Insert(x.last, rec, q.messageSession(x, m))
	q.storePatches(sub, at, m.patches)
	x.totals.Incoming++
	q.notifyReady(sub)
	return fsm.OK
}

// hasRoomFor reports whether one more message is within the quotas of the entity.
func (x *entityState) hasRoomFor(m *sentMessage) bool {
	w, g := x.window, x.sessions
	return x.quotaBytes()+uint64(len(m.payload)) <= x.settings.MaxBytes &&
		(w == nil || w.tail-w.head < windowIDsMax) && (g == nil || g.count < sessionsMax)
}
