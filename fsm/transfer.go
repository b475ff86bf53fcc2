package fsm

import (
	"cmp"
	"slices"
)

// The limits of what is forwarded to one entity.
const (
	// transferSourcesMax is the number of sub-queues whose last batch one entity remembers.
	transferSourcesMax = 10_000
	// transferMemory is how long, at least, the last batch of a source is remembered. A source
	// repeats a batch until it is answered, so this is how long it may be cut off.
	transferMemory = Millis(30 * 24 * 60 * 60 * 1000)
	// transferPatchesBytesMax bounds the patches that a message brings along: the properties
	// and reasons of hopsMax entities on the way have room in it.
	transferPatchesBytesMax = 1 << 20
)

// arrival is the last batch that was taken from a source.
type arrival struct {
	from    Outbox
	serial  uint64
	at      Instant // when it came
	count   uint16  // messages
	refused Code    // as a whole; OK when the messages were taken or refused one by one
	codes   []Code  // one per message when they are not all OK; written once, images share it
}

// result is the answer to the batch, for whoever asks again.
func (a *arrival) result() Result {
	switch {
	case a.refused != OK:
		return Result{Code: a.refused}
	case a.codes == nil:
		return Result{Codes: make([]Code, a.count)}
	}
	return Result{Codes: slices.Clone(a.codes)}
}

// arrivals makes forwarding exactly-once at the side of the destination. It is bounded by
// transferSourcesMax.
type arrivals struct {
	era  era       // of the slice list
	list []arrival // sorted by source
}

func (o Outbox) compare(p Outbox) int {
	return cmp.Or(
		cmp.Compare(o.Partition, p.Partition),
		cmp.Compare(o.Address.Entity, p.Address.Entity),
		cmp.Compare(o.Address.Sub, p.Address.Sub),
	)
}

func (a *arrivals) find(from Outbox) (int, bool) {
	return slices.BinarySearchFunc(a.list, from, func(x arrival, from Outbox) int { return x.from.compare(from) })
}

// room makes room for a source, if it is a new one, at the expense of those that are
// silent for transferMemory. It reports false when there is none.
func (a *arrivals) room(from Outbox, now Instant, current era) bool {
	if _, found := a.find(from); found {
		return true
	}
	silent := func(x arrival) bool { return x.at.After(transferMemory) <= now }
	if slices.ContainsFunc(a.list, silent) {
		a.own(current)
		a.list = slices.DeleteFunc(a.list, silent)
	}
	return len(a.list) < transferSourcesMax
}

// own makes the list writable.
func (a *arrivals) own(current era) {
	if a.era != current {
		a.list, a.era = slices.Clone(a.list), current
	}
}

// note remembers a batch in the place of the one before it.
func (a *arrivals) note(x arrival, current era) {
	a.own(current)
	if i, found := a.find(x.from); found {
		a.list[i] = x
	} else {
		a.list = slices.Insert(a.list, i, x)
	}
}

// validTransfer says whether a TransferMessages of so many messages keeps the limits.
func validTransfer(c *TransferMessages, messages int) bool {
	return c.Entity != 0 && c.Serial != 0 && c.Source.Partition != CatalogPartition && c.Source.Address.Entity != 0 &&
		c.Source.Address.forwards() && within(messages, commandMessagesMax)
}

// validTransferred is what a message of it must keep, whatever its destination is.
func validTransferred(from Address, id, session int, life Millis, hops uint8, properties []byte) bool {
	return id <= messageIDBytesMax && session <= sessionIDBytesMax && life >= 0 && validHops(from, hops) && validProperties(properties)
}

// validHops says how often a message may have been forwarded that comes from there. What a
// transaction sends has not been: it is on the way to where it was sent first.
func validHops(from Address, hops uint8) bool {
	if from.Sub == TransferQueue {
		return hops == 0
	}
	return hops >= 1 && hops <= hopsMax
}

func checkTransfer(c *TransferMessages) Code {
	if !validTransfer(c, len(c.Messages)) {
		return InvalidArgument
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		if !validTransferred(c.Source.Address, len(m.ID), len(m.Session), m.TimeToLive, m.Hops, m.Properties) || m.EnqueueAt != 0 {
			return InvalidArgument
		}
		if len(m.Payload) > messageBytesMax {
			return MessageTooLarge
		}
	}
	return OK
}

// transfer stores what another entity forwards, once. That a batch was refused because
// the entity is disabled is remembered like any other answer: the source goes by it and
// dead-letters the batch, so an old copy of the command must not be taken later.
func (q *Queues) transfer(c *TransferMessages, messages []sent) Result {
	if !validTransfer(c, len(messages)) {
		return Result{Code: InvalidArgument}
	}
	x := q.byID[c.Entity]
	if x == nil {
		return Result{Code: EntityNotFound}
	}
	if x.kind == SubscriptionEntity {
		return Result{Code: NotAllowed}
	}
	if i, found := x.arrivals.find(c.Source); found {
		switch last := &x.arrivals.list[i]; {
		case c.Serial < last.serial:
			return Result{Code: Stale}
		case c.Serial == last.serial:
			return last.result()
		}
	}
	if code := checkArriving(c.Source.Address, messages); code != OK {
		return Result{Code: code}
	}
	if !x.arrivals.room(c.Source, q.clock, q.arena.era) {
		return Result{Code: QuotaExceeded}
	}
	batch := arrival{from: c.Source, serial: c.Serial, at: q.clock, count: uint16(len(messages))}
	if !x.settings.Status.sends() {
		batch.refused = EntityDisabled
		x.arrivals.note(batch, q.arena.era)
		return Result{Code: EntityDisabled}
	}
	codes := q.receive(x, messages)
	if slices.ContainsFunc(codes, func(code Code) bool { return code != OK }) {
		batch.codes = slices.Clone(codes)
	}
	x.arrivals.note(batch, q.arena.era)
	return Result{Codes: codes}
}

// checkArriving looks at all messages before anything is changed.
func checkArriving(from Address, messages []sent) Code {
	for i := range messages {
		m := &messages[i]
		if !validTransferred(from, len(m.id), len(m.session), m.ttl, m.hops, m.properties) {
			return InvalidArgument
		}
		if _, err := DecodePatches(m.patches); err != nil {
			return InvalidArgument
		}
	}
	return OK
}

// receive takes messages, each for itself, and says how each of them fared.
func (q *Queues) receive(x *queue, messages []sent) []Code {
	codes := make([]Code, len(messages))
	for i := range messages {
		codes[i] = q.receiveOne(x, &messages[i])
	}
	q.filled(x, len(messages))
	return codes
}

// receiveOne stores a message that was forwarded, as if it had been sent here, unless it
// is a duplicate.
func (q *Queues) receiveOne(x *queue, m *sent) Code {
	if uint64(len(m.payload)) > uint64(x.settings.MaxMessageBytes) || len(m.patches) > transferPatchesBytesMax {
		return MessageTooLarge
	}
	detects := x.window != nil && len(m.id) > 0
	var key idKey
	if detects {
		key = keyOf(m.id)
		if x.window.knows(&key, q.clock, x.settings.DuplicateWindow) {
			return OK
		}
	}
	if !x.hasRoom(m) {
		return QuotaExceeded
	}
	if detects {
		x.window.remember(&key, q.clock)
	}
	if x.kind == TopicEntity {
		q.publish(x, m)
		return OK
	}
	sub := &x.subs[MainQueue]
	x.last++
	rec := record{enqueued: q.clock, expires: expiry(q.clock, x.life(m.ttl)), state: Ready}
	rec.flags = recordFlags(m.hops) << hopsShift
	rec.body = q.bodies.Append(Owner{Address: sub.address, Sequence: x.last}, m.payload)
	if x.sessions != nil && !m.hasSession {
		q.rejectSessionless(x, rec, m.patches)
		return OK
	}
	at := q.insertIn(sub, x.last, rec, q.session(x, m))
	q.patched(sub, at, m.patches)
	q.raise(sub)
	return OK
}

// hasRoom says whether one message more is within what the entity may hold and remember.
func (x *queue) hasRoom(m *sent) bool {
	w, g := x.window, x.sessions
	return x.held()+uint64(len(m.payload)) <= x.settings.MaxBytes &&
		(w == nil || w.tail-w.head < windowIDsMax) && (g == nil || g.count < sessionsMax)
}
