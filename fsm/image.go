package fsm

import (
	"fmt"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Image is a frozen state of a machine. Its methods may run beside Apply of the
// machine that made it, and beside each other.
type Image interface {
	// WriteTo writes the image: version, kind, state, checksum. Restore reads it back.
	WriteTo(w io.Writer) (int64, error)
	// Refs visits every body reference of the image: queues by entity, the main queue
	// before the dead-letter queue, messages by number, the message before its patches.
	Refs(visit func(Owner, Ref))
}

// queuesImage is an image of Queues. It shares chunks and answers with the machine,
// which copies what it writes from now on.
type queuesImage struct {
	clock   Instant
	level   uint32
	served  EntityID
	gone    []tombstone
	queues  []frozenQueue
	origins []frozenOrigin
}

// frozenQueue is a queue in an image.
type frozenQueue struct {
	id       EntityID
	version  uint64
	settings *EntitySettings
	kind     EntityKind
	topic    EntityID // of a subscription
	rules    []*rule  // of a subscription
	newest   uint64   // of a topic: number of the newest rule
	last     SequenceNumber
	active   Instant
	window   *frozenWindow
	arrivals []arrival
	grants   uint64
	sessions []*sessionPage
	entries  [4][]entry
	outs     [4]*outbox
}

// frozenWindow is what is remembered of ids, in an image.
type frozenWindow struct {
	pages        []*[windowPage]remembered
	head, tail   uint64
	floor, swept Instant
}

// Image freezes the state: it copies some 100 bytes a queue and nothing per message.
func (q *Queues) Image() Image { return q.freeze() }

func (q *Queues) freeze() *queuesImage {
	img := &queuesImage{clock: q.clock, level: q.level, served: q.served, gone: q.gone, queues: make([]frozenQueue, len(q.queues)), origins: q.table.freeze()}
	for i, x := range q.queues {
		img.queues[i] = frozenQueue{
			id: x.id, version: x.version, settings: x.settings, last: x.last, active: x.active, arrivals: x.arrivals.list,
			kind: x.kind, rules: x.rules.list, grants: x.grants,
		}
		if x.sessions != nil {
			img.queues[i].sessions = x.sessions.pages
		}
		switch x.kind {
		case TopicEntity:
			img.queues[i].newest = x.hub.last
		case SubscriptionEntity:
			img.queues[i].topic = x.topic.id
		case QueueEntity:
		}
		for sub := range x.subs {
			img.queues[i].entries[sub], img.queues[i].outs[sub] = x.subs[sub].ix.entries, x.subs[sub].out
		}
		if w := x.window; w != nil {
			img.queues[i].window = &frozenWindow{pages: w.pages, head: w.head, tail: w.tail, floor: w.floor, swept: w.swept}
		}
	}
	q.arena.freeze()
	return img
}

// WriteTo writes the image.
func (img *queuesImage) WriteTo(w io.Writer) (int64, error) { return img.write(w, true) }

func (img *queuesImage) write(w io.Writer, refs bool) (int64, error) {
	iw := newImageWriter(w, machineQueues, imageVersion(machineQueues, img.level), refs)
	if iw.filed = img.level >= levelSteps; iw.filed {
		iw.uvarint(uint64(img.level))
		iw.uvarint(uint64(img.served))
	}
	iw.instant(img.clock)
	iw.count(len(img.gone))
	for _, id := range img.gone {
		iw.uvarint(uint64(id.id))
		iw.uvarint(uint64(id.topic))
		iw.spill()
	}
	iw.count(len(img.queues))
	for i := range img.queues {
		iw.queue(&img.queues[i])
	}
	iw.answers(img.origins)
	return iw.finish()
}

func (w *imageWriter) queue(x *frozenQueue) {
	w.uvarint(uint64(x.id))
	w.byte(byte(x.kind))
	w.uvarint(x.version)
	w.settings(*x.settings)
	w.rules(x)
	w.uvarint(uint64(x.last))
	w.instant(x.active)
	if x.window != nil {
		w.window(x.window)
	}
	w.arrivals(x.arrivals)
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
			return w.err == nil
		})
		w.outbox(x.outs[sub])
		w.spill()
	}
}

// window writes the ids that are remembered, oldest first. That there is a window says
// the setting.
func (w *imageWriter) window(x *frozenWindow) {
	w.instant(x.floor)
	w.instant(x.swept)
	w.count(int(x.tail - x.head))
	before := Instant(0)
	for pos := x.head; pos < x.tail && w.err == nil; pos++ {
		id := &x.pages[pos/windowPage-x.head/windowPage][pos%windowPage]
		w.buf = append(w.buf, id.key[:]...)
		w.instant(id.at - before)
		before = id.at
		w.spill()
	}
}

func (r *imageReader) window(w *window) {
	w.floor, w.swept = r.instant(), r.instant()
	before := Instant(0)
	r.more(windowIDsMax, func() {
		var key idKey
		for i := range key {
			key[i] = r.byte()
		}
		step := r.instant()
		r.want(step <= Instant(math.MaxInt64)-before)
		before += step
		if r.err == nil {
			w.remember(&key, before)
		}
	})
}

// The bits that say which fields of a record follow.
const (
	patched     byte = 1 << 0
	withExpires byte = 1 << 1
	withRots    byte = 1 << 2

	fieldsKnown = patched | withExpires | withRots
)

func (w *imageWriter) record(step SequenceNumber, rec *record, patch Ref) {
	fields := byte(0)
	if patch != (Ref{}) {
		fields |= patched
	}
	if rec.expires != 0 {
		fields |= withExpires
	}
	if rec.rots != 0 {
		fields |= withRots
	}
	w.uvarint(uint64(step))
	w.byte(byte(rec.state))
	w.byte(byte(rec.flags))
	w.byte(fields)
	w.uvarint(uint64(rec.epoch))
	w.uvarint(uint64(rec.attempts))
	w.instant(rec.enqueued)
	w.instant(rec.deadline)
	if rec.expires != 0 {
		w.instant(rec.expires)
	}
	if rec.rots != 0 {
		w.uvarint(uint64(rec.rots))
	}
	if rec.flags&shared == 0 {
		w.ref(rec.body)
	} else {
		w.uvarint(uint64(rec.original()))
		w.uvarint(uint64(rec.body.Size))
	}
	if patch != (Ref{}) {
		w.ref(patch)
	}
	w.spill()
}

// Restore replaces the state with an image read back. On an error the machine is as it
// was. Bodies are not touched: the references are those of the replica that wrote the
// image, and [Queues.Refs] puts others in their place.
func (q *Queues) Restore(r io.Reader) error {
	var fresh Queues
	fresh.bodies = q.bodies
	fresh.reset()
	ir := newImageReader(r, machineQueues)
	if ir.version >= imageVersion(machineQueues, levelSteps) {
		fresh.level, fresh.served = ir.uint32(), EntityID(ir.uvarint())
		ir.want(fresh.level >= levelSteps)
	}
	fresh.clock = ir.instant()
	ir.more(entitiesMax, func() { ir.tombstone(&fresh) })
	ir.more(math.MaxUint64, func() { ir.queue(&fresh) })
	ir.share(&fresh)
	ir.answers(&fresh.table)
	if err := ir.finish(); err != nil {
		return fmt.Errorf("restore queues: %w", err)
	}
	q.adopt(&fresh)
	return nil
}

// adopt takes over the state of a machine that is not used any more, and ties what
// points into it to q.
func (q *Queues) adopt(fresh *Queues) {
	fresh.exceeded = q.exceeded
	*q = *fresh
	q.table.era, q.table.forget = &q.arena.era, q.forget
	for _, x := range q.queues {
		for i := range x.subs {
			x.subs[i].ix.arena = &q.arena
		}
	}
}

func (r *imageReader) tombstone(q *Queues) {
	stone := tombstone{id: EntityID(r.uvarint()), topic: EntityID(r.uvarint())}
	n := len(q.gone)
	r.want(stone.id != 0 && stone.id != stone.topic && (n == 0 || q.gone[n-1].id < stone.id))
	q.gone = append(q.gone, stone)
}

func (r *imageReader) queue(q *Queues) {
	id, kind := EntityID(r.uvarint()), EntityKind(r.byte())
	n := len(q.queues)
	_, gone := q.grave(id)
	r.want(kind <= SubscriptionEntity && id != 0 && !gone && (n == 0 || q.queues[n-1].id < id))
	if r.err != nil {
		return
	}
	x := q.add(id, kind)
	x.version = r.uvarint()
	settings := r.settings()
	x.settings = &settings
	r.want(settings.validFor(kind))
	r.rules(x)
	x.last = SequenceNumber(r.limited(math.MaxInt64)) // a signed long on the wire
	x.active = r.instant()
	if x.detects(&settings) {
		x.window = &window{era: q.arena.era}
		r.window(x.window)
		q.expectSweep(x)
	}
	q.expectIdle(x)
	r.arrivals(&x.arrivals)
	if settings.RequiresSession {
		q.group(x)
		r.sessions(q, x)
	}
	for i := range x.subs {
		sub := &x.subs[i]
		before := SequenceNumber(0)
		r.more(math.MaxUint64, func() { before = r.record(q, sub, before, x.last) })
		r.outbox(q, sub)
	}
	if x.hub != nil && len(x.hub.pending) > 0 && r.err == nil {
		q.pending = append(q.pending, x)
	}
	if x.sessions != nil && r.err == nil {
		r.sessionsUsed(q, x)
	}
}

// record reads one message into its sub-queue and arms its alarm.
func (r *imageReader) record(q *Queues, sub *subqueue, before, last SequenceNumber) SequenceNumber {
	n := before + SequenceNumber(r.uvarint())
	rec := record{state: MessageState(r.byte()), flags: recordFlags(r.byte())}
	fields := r.byte()
	r.want(fields&^fieldsKnown == 0)
	rec.epoch = r.uint32()
	rec.attempts = uint16(r.limited(math.MaxUint16))
	rec.enqueued, rec.deadline = r.instant(), r.instant()
	if fields&withExpires != 0 {
		rec.expires = r.instant()
		r.want(rec.expires != 0)
	}
	if fields&withRots != 0 {
		rec.rots = r.uint32()
		r.want(rec.rots != 0 && sub.address.Sub != MainQueue)
	}
	if rec.flags&shared == 0 {
		rec.body = r.ref()
	} else {
		rec.body = r.sharedRef()
	}
	var patch Ref
	if fields&patched != 0 {
		patch = r.ref()
		r.want(patch != Ref{})
	}
	r.want(before < n && n <= last)
	r.want(rec.state >= Ready && (rec.state <= Leaving || rec.state == Pending && q.bounded()))
	r.want(sub.canHold(&rec, patch))
	r.want(rec.flags&^recordFlagsKnown == 0 && rec.flags.hops() <= hopsMax)
	r.want((rec.state == Locked && !sub.grouped() || rec.state == Scheduled) == (rec.deadline != 0))
	r.want(rec.state == Scheduled || rec.flags&delayed == 0)
	session := r.sessionOf(sub, &rec)
	if r.err != nil {
		return n
	}
	at := q.insertIn(sub, n, rec, session)
	if patch != (Ref{}) {
		sub.ix.setPatch(at, patch)
	}
	if rec.state == Pending {
		sub.of.hub.pending = append(sub.of.hub.pending, n)
	}
	if rec.state == Locked && rec.deadline != 0 {
		q.arm(sub, alarm{at: rec.deadline, number: n, epoch: rec.epoch, kind: alarmLock})
	}
	return n
}

// Digest is a hash of the whole state without the references, which differ between
// replicas: two replicas that applied the same entries have the same digest. It costs
// as much as writing an image.
func (q *Queues) Digest() uint64 { return digest(q.freeze()) }

func digest(img interface {
	write(w io.Writer, refs bool) (int64, error)
},
) uint64 {
	h := xxhash.New()
	_, _ = img.write(h, false) // a hash takes everything
	return h.Sum64()
}
