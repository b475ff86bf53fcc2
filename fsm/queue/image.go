package queue

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
	"github.com/peeklock/peeklock/fsm/image"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/fsm/totals"
)

// queuesImage is an image of Queues. It shares chunks and answers with the state machine, which
// copies them before it writes.
type queuesImage struct {
	times         fsm.Times
	level         uint32
	epoch         uint64
	lastPublished fsm.EntityID
	tombstones    []tombstone
	entities      []frozenEntity
	answers       answers.Frozen
}

// frozenEntity is an entity in an image.
type frozenEntity struct {
	id            fsm.EntityID
	version       uint64
	settings      *fsm.EntitySettings
	kind          fsm.EntityKind
	topic         fsm.EntityID // of a subscription
	rules         []*rule      // of a subscription
	newest        uint64       // of a topic: number of the newest rule
	last          fsm.SequenceNumber
	lastActivity  fsm.Instant
	lastUse       fsm.Instant
	fence         uint64
	totals        totals.Totals
	window        *frozenDuplicateWindow
	sourceBatches []sourceBatch
	grants        uint64
	sessions      []*sessionPage
	messages      [4]index.Frozen
	outs          [4]*outbox
}

// frozenDuplicateWindow is a duplicate window in an image.
type frozenDuplicateWindow struct {
	pages        []*[windowPage]duplicateID
	head, tail   uint64
	floor, swept fsm.Instant
}

// Image freezes the state: it copies less than 500 bytes per entity and nothing per message.
func (q *Machine) Image() fsm.Image { return q.freeze() }

func (q *Machine) freeze() *queuesImage {
	img := &queuesImage{times: q.times, level: q.level, epoch: q.epoch, lastPublished: q.lastPublished, tombstones: q.tombstones, entities: make([]frozenEntity, len(q.entities)), answers: q.table.Freeze()}
	for i, x := range q.entities {
		img.entities[i] = frozenEntity{
			id: x.id, version: x.version, settings: x.settings, last: x.last, lastActivity: x.lastActivity, lastUse: x.lastUse, sourceBatches: x.sourceBatches.list,
			kind: x.kind, rules: x.rules.list, grants: x.grants, fence: x.fence, totals: x.totals,
		}
		if x.sessions != nil {
			img.entities[i].sessions = x.sessions.pages
		}
		switch x.kind {
		case fsm.TopicEntity:
			img.entities[i].newest = x.topicState.lastRule
		case fsm.SubscriptionEntity:
			img.entities[i].topic = x.topic.id
		case fsm.QueueEntity:
		}
		for sub := range x.subs {
			img.entities[i].messages[sub], img.entities[i].outs[sub] = x.subs[sub].ix.Freeze(), x.subs[sub].out
		}
		if w := x.window; w != nil {
			img.entities[i].window = &frozenDuplicateWindow{pages: w.pages, head: w.head, tail: w.tail, floor: w.floor, swept: w.swept}
		}
	}
	q.arena.Freeze()
	return img
}

// imageWriter writes the state of Queues, and imageReader reads it.
type (
	imageWriter struct{ *image.Writer }
	imageReader struct {
		*image.Reader

		stream *imageStream // nil unless the image is only checked
	}
)

// imageStream is what CheckImage remembers of messages.
type imageStream struct {
	forwarding []fsm.SequenceNumber // of the sub-queue that is read
	// copies is the sum of the hashes of the messages of topics, once for each copy, less those of the copies.
	copies uint64
}

// WriteTo writes the image.
func (img *queuesImage) WriteTo(w io.Writer) (int64, error) { return img.write(w, true) }

func (img *queuesImage) write(w io.Writer, refs bool) (int64, error) {
	iw := imageWriter{image.NewWriter(w, fsm.MachineQueues, refs)}
	iw.Uvarint(uint64(img.level))
	iw.Uvarint(uint64(img.lastPublished))
	iw.Uvarint(img.epoch)
	iw.Times(img.times)
	iw.Count(len(img.tombstones))
	for _, id := range img.tombstones {
		iw.Uvarint(uint64(id.id))
		iw.Uvarint(uint64(id.topic))
		iw.FlushIfFull()
	}
	iw.Count(len(img.entities))
	for i := range img.entities {
		iw.entityState(&img.entities[i])
	}
	img.answers.Write(iw.Writer)
	return iw.Finish()
}

func (w *imageWriter) entityState(x *frozenEntity) {
	w.Uvarint(uint64(x.id))
	w.Byte(byte(x.kind))
	w.Uvarint(x.version)
	w.Settings(x.settings)
	w.rules(x)
	w.Uvarint(uint64(x.last))
	w.Instant(x.lastActivity)
	w.Instant(x.lastUse)
	w.Uvarint(x.fence)
	for total := range x.totals.Counters() {
		w.Uvarint(*total)
	}
	if x.window != nil {
		w.window(x.window)
	}
	w.sourceBatches(x.sourceBatches)
	grouped := x.settings.RequiresSession
	if grouped {
		w.sessions(x)
	}
	for sub, messages := range x.messages {
		w.Count(messages.Len())
		before := fsm.SequenceNumber(0)
		messages.Walk(0, func(n fsm.SequenceNumber, rec *index.Record, patch fsm.Ref, session uint32) bool {
			w.Uvarint(uint64(n - before))
			rec.Write(w.Writer, patch)
			if grouped {
				w.sessionOf(session)
			}
			before = n
			return !w.Failed()
		})
		w.outbox(x.outs[sub])
		w.FlushIfFull()
	}
}

// window writes the remembered ids, oldest first. The settings tell whether there is a window.
func (w *imageWriter) window(x *frozenDuplicateWindow) {
	w.Instant(x.floor)
	w.Instant(x.swept)
	w.Count(int(x.tail - x.head))
	before := fsm.Instant(0)
	for pos := x.head; pos < x.tail && !w.Failed(); pos++ {
		id := &x.pages[pos/windowPage-x.head/windowPage][pos%windowPage]
		w.Bytes(id.key[:])
		w.Instant(id.at - before)
		before = id.at
		w.FlushIfFull()
	}
}

func (r *imageReader) window(w *duplicateWindow) {
	w.floor, w.swept = r.Instant(), r.Instant()
	before := fsm.Instant(0)
	r.Repeat(windowIDsMax, func() {
		var key idKey
		for i := range key {
			key[i] = r.Byte()
		}
		step := r.Instant()
		r.Require(step <= fsm.Instant(math.MaxInt64)-before)
		before += step
		if !r.Failed() && r.stream == nil {
			w.remember(&key, before)
		}
	})
}

// Restore replaces the state by that of an image. On an error the state machine is unchanged.
// Bodies are not touched: the references are those of the replica that wrote the image, and
// [Machine.Refs] replaces them.
func (q *Machine) Restore(r io.Reader) error {
	var fresh Machine
	fresh.reset(q.bodies)
	ir := imageReader{Reader: image.NewReader(r, fsm.MachineQueues)}
	ir.machine(&fresh)
	if err := ir.Finish(); err != nil {
		return fmt.Errorf("restore queues: %w", err)
	}
	fresh.exceeded = q.exceeded
	*q = fresh
	return nil
}

// CheckImage reads an image without building the state, and returns the digest of the state. It makes the checks of Restore, but
// only compares a hash of the messages of topics with one of their copies, and does not find what fails when a message is added to
// its index. It holds no messages; it needs memory for settings and rules, the answers, and the sessions of one entity at a time. It may run
// concurrently with all methods.
func (q *Machine) CheckImage(r io.Reader) (digest uint64, err error) {
	var scratch Machine
	scratch.reset(nil)
	ir := imageReader{image.NewDigestReader(r, fsm.MachineQueues), &imageStream{}}
	ir.machine(&scratch)
	ir.Require(ir.stream.copies == 0)
	if err := ir.Finish(); err != nil {
		return 0, fmt.Errorf("check image of queues: %w", err)
	}
	return ir.StateDigest(), nil
}

// machine reads all of an image into an empty machine.
func (r *imageReader) machine(q *Machine) {
	q.level, q.lastPublished, q.epoch = r.Uint32(), fsm.EntityID(r.Uvarint()), r.Uvarint()
	q.times = r.Times()
	r.Repeat(fsm.EntitiesMax, func() { r.tombstone(q) })
	r.Repeat(math.MaxUint64, func() { r.entityState(q) })
	r.attachSubscriptions(q)
	q.table.Read(r.Reader)
}

func (r *imageReader) tombstone(q *Machine) {
	read := tombstone{id: fsm.EntityID(r.Uvarint()), topic: fsm.EntityID(r.Uvarint())}
	n := len(q.tombstones)
	r.Require(read.id != 0 && read.id != read.topic && (n == 0 || q.tombstones[n-1].id < read.id))
	q.tombstones = append(q.tombstones, read)
}

func (r *imageReader) entityState(q *Machine) {
	id, kind := fsm.EntityID(r.Uvarint()), fsm.EntityKind(r.Byte())
	n := len(q.entities)
	_, gone := q.findTombstone(id)
	r.Require(kind <= fsm.SubscriptionEntity && id != 0 && !gone && (n == 0 || q.entities[n-1].id < id))
	if r.Failed() {
		return
	}
	x := q.addEntity(id, kind)
	x.version = r.Uvarint()
	settings := r.Settings()
	x.settings = q.settings.share(&settings)
	r.Require(settings.ValidFor(kind))
	r.rules(x)
	x.last = fsm.SequenceNumber(r.UvarintMax(math.MaxInt64)) // a signed long on the wire
	x.lastActivity = r.Instant()
	x.lastUse = r.Instant()
	if fence := r.Uvarint(); fence != 0 {
		r.Require(kind == fsm.SubscriptionEntity || settings.EnablePartitioning)
		q.setFence(x, fence)
	}
	for total := range x.totals.Counters() {
		*total = r.Uvarint()
	}
	if x.detectsDuplicates(&settings) {
		x.window = &duplicateWindow{generation: *q.arena.Generation()}
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
		before := fsm.SequenceNumber(0)
		r.Repeat(math.MaxUint64, func() { before = r.record(sub, before, x.last) })
		r.outbox(q, sub)
	}
	if x.topicState != nil && len(x.topicState.pending) > 0 && !r.Failed() {
		q.pending = append(q.pending, x)
	}
	if x.sessions != nil && !r.Failed() {
		r.sessionsUsed(q, x)
	}
	if r.stream != nil {
		x.sessions, x.sourceBatches = nil, sourceBatches{}
	}
}

// record reads one message into its sub-queue and adds its timer.
func (r *imageReader) record(sub *subqueue, before, last fsm.SequenceNumber) fsm.SequenceNumber {
	n := before + fsm.SequenceNumber(r.Uvarint())
	rec, patch := index.ReadRecord(r.Reader)
	r.Require(before < n && n <= last)
	r.Require(sub.canHold(&rec, patch))
	r.Require((rec.State() == fsm.Locked && !sub.ix.DeliversBySession() || rec.State() == fsm.Scheduled) == (rec.Deadline() != 0))
	session := r.sessionOf(sub, &rec)
	if r.Failed() {
		return n
	}
	if r.stream != nil {
		r.stream.count(sub, n, &rec, session)
		r.Require(len(r.stream.forwarding) <= fsm.CommandMessagesMax)
		return n
	}
	at := sub.ix.Insert(n, rec, session)
	if patch != (fsm.Ref{}) {
		sub.ix.SetPatch(at, patch)
	}
	if rec.State() == fsm.Pending {
		sub.entity.topicState.pending = append(sub.entity.topicState.pending, n)
	}
	sub.ix.AddLockTimer(n, &rec)
	return n
}

// count notes a message that is not kept.
func (s *imageStream) count(sub *subqueue, n fsm.SequenceNumber, rec *index.Record, session uint32) {
	x := sub.entity
	if x.sessions != nil && session != index.Sessionless {
		x.sessions.messages[session].otherCount++
	}
	switch {
	case rec.State() == fsm.Forwarding:
		s.forwarding = append(s.forwarding, n)
	case rec.State() == fsm.Shared:
		s.copies += uint64(rec.Copies()) * messageHash(x.id, n, rec.Size())
	case rec.IsCopy():
		s.copies -= messageHash(x.topic.id, rec.OriginalNumber(), rec.Size())
	}
}

// messageHash returns a hash of the topic, the number and the size of a message.
func messageHash(topic fsm.EntityID, n fsm.SequenceNumber, size uint64) uint64 {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], uint64(topic))
	binary.LittleEndian.PutUint64(b[8:], uint64(n))
	binary.LittleEndian.PutUint64(b[16:], size)
	return xxhash.Sum64(b[:])
}

// Digest returns a hash of the whole state without the references, which differ between replicas:
// two replicas that applied the same entries have the same digest. It costs as much as writing an
// image.
func (q *Machine) Digest() uint64 { return q.freeze().Digest() }

// Digest is [Machine.Digest] of the frozen state. It may run concurrently with Apply.
func (img *queuesImage) Digest() uint64 { return image.Digest(img.write) }

// Refs calls visit for every body reference of the image.
func (img *queuesImage) Refs(visit func(fsm.Owner, fsm.Ref)) {
	for i := range img.entities {
		x := &img.entities[i]
		for sub, messages := range x.messages {
			messages.EachRef(fsm.Address{Entity: x.id, Sub: fsm.SubQueue(sub)}, visit)
		}
		eachState(x.id, x.sessions, visit)
	}
}
