package fsm

import (
	"fmt"
	"io"
	"math"

	"github.com/peeklock/peeklock/fsm/planted"
)

// queuesImage is an image of Queues. It shares chunks and answers with the state machine, which
// copies them before it writes.
type queuesImage struct {
	times         Times
	level         uint32
	epoch         uint64
	lastPublished EntityID
	tombstones    []tombstone
	entities      []frozenEntity
	answers       frozenAnswers
}

// frozenEntity is an entity in an image.
type frozenEntity struct {
	id            EntityID
	version       uint64
	settings      *EntitySettings
	kind          EntityKind
	topic         EntityID // of a subscription
	rules         []*rule  // of a subscription
	newest        uint64   // of a topic: number of the newest rule
	last          SequenceNumber
	lastActivity  Instant
	lastUse       Instant
	fence         uint64
	window        *frozenDuplicateWindow
	sourceBatches []sourceBatch
	grants        uint64
	sessions      []*sessionPage
	entries       [4][]chunkEntry
	outs          [4]*outbox
}

// frozenDuplicateWindow is a duplicate window in an image.
type frozenDuplicateWindow struct {
	pages        []*[windowPage]duplicateID
	head, tail   uint64
	floor, swept Instant
}

// Image freezes the state: it copies some 100 bytes per entity and nothing per message.
func (q *Queues) Image() Image { return q.freeze() }

func (q *Queues) freeze() *queuesImage {
	img := &queuesImage{times: q.times, level: q.level, epoch: q.epoch, lastPublished: q.lastPublished, tombstones: q.tombstones, entities: make([]frozenEntity, len(q.entities)), answers: q.table.freeze()}
	for i, x := range q.entities {
		img.entities[i] = frozenEntity{
			id: x.id, version: x.version, settings: x.settings, last: x.last, lastActivity: x.lastActivity, lastUse: x.lastUse, sourceBatches: x.sourceBatches.list,
			kind: x.kind, rules: x.rules.list, grants: x.grants, fence: x.fence,
		}
		if x.sessions != nil {
			img.entities[i].sessions = x.sessions.pages
		}
		switch x.kind {
		case TopicEntity:
			img.entities[i].newest = x.topicState.lastRule
		case SubscriptionEntity:
			img.entities[i].topic = x.topic.id
		case QueueEntity:
		}
		for sub := range x.subs {
			img.entities[i].entries[sub], img.entities[i].outs[sub] = x.subs[sub].ix.entries, x.subs[sub].out
		}
		if w := x.window; w != nil {
			img.entities[i].window = &frozenDuplicateWindow{pages: w.pages, head: w.head, tail: w.tail, floor: w.floor, swept: w.swept}
		}
	}
	q.arena.freeze()
	return img
}

// imageWriter writes the state of Queues, and imageReader reads it.
type (
	imageWriter struct{ *streamWriter }
	imageReader struct{ *streamReader }
)

// WriteTo writes the image.
func (img *queuesImage) WriteTo(w io.Writer) (int64, error) { return img.write(w, true) }

func (img *queuesImage) write(w io.Writer, refs bool) (int64, error) {
	iw := imageWriter{newStreamWriter(w, machineQueues, refs)}
	iw.uvarint(uint64(img.level))
	iw.uvarint(uint64(img.lastPublished))
	iw.uvarint(img.epoch)
	iw.times(img.times)
	iw.count(len(img.tombstones))
	for _, id := range img.tombstones {
		iw.uvarint(uint64(id.id))
		iw.uvarint(uint64(id.topic))
		iw.flushIfFull()
	}
	iw.count(len(img.entities))
	for i := range img.entities {
		iw.entityState(&img.entities[i])
	}
	img.answers.write(iw.streamWriter)
	return iw.finish()
}

func (w *imageWriter) entityState(x *frozenEntity) {
	w.uvarint(uint64(x.id))
	w.byte(byte(x.kind))
	w.uvarint(x.version)
	w.settings(x.settings)
	w.rules(x)
	w.uvarint(uint64(x.last))
	w.instant(x.lastActivity)
	w.instant(x.lastUse)
	w.uvarint(x.fence)
	if x.window != nil {
		w.window(x.window)
	}
	w.sourceBatches(x.sourceBatches)
	grouped := x.settings.RequiresSession
	if grouped {
		w.sessions(x)
	}
	for sub, entries := range x.entries {
		total := 0
		for i := range entries {
			total += entries[i].c.count
		}
		w.count(total)
		before := SequenceNumber(0)
		walk(entries, 0, func(n SequenceNumber, rec *record, patch Ref, session uint32) bool {
			w.record(n-before, rec, patch)
			if grouped {
				w.sessionOf(session)
			}
			before = n
			return !w.failed()
		})
		w.outbox(x.outs[sub])
		w.flushIfFull()
	}
}

// window writes the remembered ids, oldest first. The settings tell whether there is a window.
func (w *imageWriter) window(x *frozenDuplicateWindow) {
	w.instant(x.floor)
	w.instant(x.swept)
	w.count(int(x.tail - x.head))
	before := Instant(0)
	for pos := x.head; pos < x.tail && !w.failed(); pos++ {
		id := &x.pages[pos/windowPage-x.head/windowPage][pos%windowPage]
		w.bytes(id.key[:])
		w.instant(id.at - before)
		before = id.at
		w.flushIfFull()
	}
}

func (r *imageReader) window(w *duplicateWindow) {
	w.floor, w.swept = r.instant(), r.instant()
	before := Instant(0)
	r.repeat(windowIDsMax, func() {
		var key idKey
		for i := range key {
			key[i] = r.byte()
		}
		step := r.instant()
		r.require(step <= Instant(math.MaxInt64)-before)
		before += step
		if !r.failed() && !planted.Active(planted.ForgetDuplicateIDs) {
			w.remember(&key, before)
		}
	})
}

// Bits that tell which optional fields of a record follow.
const (
	patched              byte = 1 << 0
	withExpires          byte = 1 << 1
	withDeadLetterExpiry byte = 1 << 2

	fieldsKnown = patched | withExpires | withDeadLetterExpiry
)

func (w *imageWriter) record(step SequenceNumber, rec *record, patch Ref) {
	fields := byte(0)
	if patch != (Ref{}) {
		fields |= patched
	}
	if rec.expires != 0 {
		fields |= withExpires
	}
	if rec.deadLetterExpiry != 0 {
		fields |= withDeadLetterExpiry
	}
	w.uvarint(uint64(step))
	w.byte(byte(rec.state))
	w.byte(byte(rec.flags))
	w.byte(fields)
	w.uvarint(uint64(rec.epoch))
	w.uvarint(uint64(rec.failedDeliveries))
	w.instant(rec.enqueued)
	w.instant(rec.deadline)
	if rec.expires != 0 {
		w.instant(rec.expires)
	}
	if rec.deadLetterExpiry != 0 {
		w.uvarint(uint64(rec.deadLetterExpiry))
	}
	if rec.flags&shared == 0 {
		w.ref(rec.body)
	} else {
		w.uvarint(uint64(rec.originalNumber()))
		w.uvarint(uint64(rec.body.Size))
	}
	if patch != (Ref{}) {
		w.ref(patch)
	}
	w.flushIfFull()
}

// Restore replaces the state by that of an image. On an error the state machine is unchanged.
// Bodies are not touched: the references are those of the replica that wrote the image, and
// [Queues.Refs] replaces them.
func (q *Queues) Restore(r io.Reader) error {
	var fresh Queues
	fresh.bodies = q.bodies
	fresh.reset()
	ir := imageReader{newStreamReader(r, machineQueues)}
	fresh.level, fresh.lastPublished, fresh.epoch = ir.uint32(), EntityID(ir.uvarint()), ir.uvarint()
	fresh.times = ir.times()
	ir.repeat(entitiesMax, func() { ir.tombstone(&fresh) })
	ir.repeat(math.MaxUint64, func() { ir.entityState(&fresh) })
	ir.attachSubscriptions(&fresh)
	fresh.table.read(ir.streamReader)
	if err := ir.finish(); err != nil {
		return fmt.Errorf("restore queues: %w", err)
	}
	q.adopt(&fresh)
	return nil
}

// adopt takes over the state of a state machine that is no longer used, and makes references into
// it point to q.
func (q *Queues) adopt(fresh *Queues) {
	fresh.exceeded = q.exceeded
	*q = *fresh
	q.table.generation, q.table.forget = &q.arena.generation, q.forgetAnswer
	for _, x := range q.entities {
		for i := range x.subs {
			x.subs[i].ix.arena = &q.arena
		}
	}
}

func (r *imageReader) tombstone(q *Queues) {
	read := tombstone{id: EntityID(r.uvarint()), topic: EntityID(r.uvarint())}
	n := len(q.tombstones)
	r.require(read.id != 0 && read.id != read.topic && (n == 0 || q.tombstones[n-1].id < read.id))
	q.tombstones = append(q.tombstones, read)
}

func (r *imageReader) entityState(q *Queues) {
	id, kind := EntityID(r.uvarint()), EntityKind(r.byte())
	n := len(q.entities)
	_, gone := q.findTombstone(id)
	r.require(kind <= SubscriptionEntity && id != 0 && !gone && (n == 0 || q.entities[n-1].id < id))
	if r.failed() {
		return
	}
	x := q.addEntity(id, kind)
	x.version = r.uvarint()
	settings := r.settings()
	x.settings = q.settings.share(&settings)
	r.require(settings.validFor(kind))
	r.rules(x)
	x.last = SequenceNumber(r.uvarintMax(math.MaxInt64)) // a signed long on the wire
	x.lastActivity = r.instant()
	x.lastUse = r.instant()
	if fence := r.uvarint(); fence != 0 {
		r.require(kind == SubscriptionEntity || settings.EnablePartitioning)
		q.setFence(x, fence)
	}
	if x.detectsDuplicates(&settings) {
		x.window = &duplicateWindow{generation: q.arena.generation}
		r.window(x.window)
		q.scheduleSweep(x)
	}
	q.scheduleIdle(x)
	r.sourceBatches(&x.sourceBatches)
	if settings.RequiresSession {
		q.enableSessions(x)
		r.sessions(q, x)
	}
	for i := range x.subs {
		sub := &x.subs[i]
		before := SequenceNumber(0)
		r.repeat(math.MaxUint64, func() { before = r.record(q, sub, before, x.last) })
		r.outbox(q, sub)
	}
	if x.topicState != nil && len(x.topicState.pending) > 0 && !r.failed() {
		q.pending = append(q.pending, x)
	}
	if x.sessions != nil && !r.failed() {
		r.sessionsUsed(q, x)
	}
}

// record reads one message into its sub-queue and adds its timer.
func (r *imageReader) record(q *Queues, sub *subqueue, before, last SequenceNumber) SequenceNumber {
	n := before + SequenceNumber(r.uvarint())
	rec := record{state: MessageState(r.byte()), flags: recordFlags(r.byte())}
	fields := r.byte()
	r.require(fields&^fieldsKnown == 0)
	rec.epoch = r.uint32()
	rec.failedDeliveries = uint16(r.uvarintMax(math.MaxUint16))
	rec.enqueued, rec.deadline = r.instant(), r.instant()
	if fields&withExpires != 0 {
		rec.expires = r.instant()
		r.require(rec.expires != 0)
	}
	if fields&withDeadLetterExpiry != 0 {
		rec.deadLetterExpiry = r.uint32()
		r.require(rec.deadLetterExpiry != 0 && sub.address.Sub != MainQueue)
	}
	if rec.flags&shared == 0 {
		rec.body = r.ref()
	} else {
		rec.body = r.sharedRef()
	}
	var patch Ref
	if fields&patched != 0 {
		patch = r.ref()
		r.require(patch != Ref{})
	}
	r.require(before < n && n <= last)
	r.require(rec.state >= Ready && rec.state <= Pending)
	r.require(sub.canHold(&rec, patch))
	r.require(rec.flags&^recordFlagsKnown == 0 && rec.flags.hops() <= hopsMax)
	r.require((rec.state == Locked && !sub.deliversBySession() || rec.state == Scheduled) == (rec.deadline != 0))
	r.require(rec.state == Scheduled || rec.flags&delayed == 0)
	session := r.sessionOf(sub, &rec)
	if r.failed() {
		return n
	}
	at := q.insertInSession(sub, n, rec, session)
	if patch != (Ref{}) {
		sub.ix.setPatch(at, patch)
	}
	if rec.state == Pending {
		sub.entity.topicState.pending = append(sub.entity.topicState.pending, n)
	}
	if rec.state == Locked && rec.deadline != 0 {
		q.addTimer(sub, timer{at: rec.deadline, number: n, epoch: rec.epoch, kind: timerLock})
	}
	return n
}

// Digest returns a hash of the whole state without the references, which differ between replicas:
// two replicas that applied the same entries have the same digest. It costs as much as writing an
// image.
func (q *Queues) Digest() uint64 { return q.freeze().Digest() }

// Digest is [Queues.Digest] of the frozen state. It may run concurrently with Apply.
func (img *queuesImage) Digest() uint64 { return digest(img.write) }
