package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/index"
)

// publish accepts one message at a topic: to be published now, or when its time comes.
func (q *topics) publish(x *entityState, m *sentMessage) fsm.SequenceNumber {
	n := q.numberFor(x, m)
	x.totals.Incoming++
	if m.at <= q.times.Wall {
		q.enqueue(x, n, m)
		return n
	}
	sub := &x.subs[fsm.MainQueue]
	owner := fsm.Owner{Address: sub.address, Sequence: n}
	at := sub.ix.Insert(n, index.Scheduled(q.bodies.Append(owner, m.payload), q.times.Wall, m.at, m.ttl), index.NoSession)
	if len(m.properties) > 0 {
		owner.Patch = true
		sub.ix.SetPatch(at, q.bodies.Append(owner, m.properties))
	}
	return n
}

// publishDue publishes a scheduled message of a topic, and returns the number of copies.
func (q *topics) publishDue(sub *subqueue, at index.Cursor, rec index.Record) (copies int) {
	x := sub.entity
	m := sentMessage{payload: q.bodies.Read(rec.Body()), ttl: rec.Life()}
	patch := sub.ix.Patch(at)
	if patch != (fsm.Ref{}) {
		m.properties = q.bodies.Read(patch)
	}
	sub.ix.Remove(at)
	x.last++
	copies = q.enqueue(x, x.last, &m)
	q.releaseBodies(rec.Body(), patch)
	x.lastActivity = q.times.Serving
	return copies
}

// enqueue accepts a message that is due, under a new number, and returns the number of copies made
// at once: it is published now, or by one of the next pulses. The body is stored once, with a
// record of the topic that counts the copies; if no subscription gets a copy, neither is stored.
func (q *topics) enqueue(x *entityState, n fsm.SequenceNumber, m *sentMessage) (copies int) {
	if m.only == 0 && !q.mayPublish(x) {
		q.storePending(x, n, m)
		return 0
	}
	if copies = q.fanOut(x, n, m, q.times.Wall); copies > 0 {
		main := &x.subs[fsm.MainQueue]
		body := q.bodies.Append(fsm.Owner{Address: main.address, Sequence: n}, m.payload)
		main.ix.Insert(n, index.Original(body, q.times.Wall, copies), index.NoSession)
	}
	return copies
}

// mayPublish reports whether the current entry may publish another message of the topic.
func (q *topics) mayPublish(x *entityState) bool {
	return len(x.topicState.pending) == 0 && q.spent < entryStepsStart && !x.isOverfull()
}

// storePending stores an accepted message of a topic as Pending, to be published by a later pulse.
func (q *topics) storePending(x *entityState, n fsm.SequenceNumber, m *sentMessage) {
	sub := &x.subs[fsm.MainQueue]
	owner := fsm.Owner{Address: sub.address, Sequence: n}
	at := sub.ix.Insert(n, index.Pending(q.bodies.Append(owner, m.payload), q.times.Wall, m.ttl), index.NoSession)
	if rest := appendRest(nil, m); len(rest) > 0 {
		owner.Patch = true
		sub.ix.SetPatch(at, q.bodies.Append(owner, rest))
	}
	q.appendPending(x, n)
}

// appendPending appends the newest Pending message of a topic to its list.
func (q *topics) appendPending(x *entityState, n fsm.SequenceNumber) {
	x.topicState.pending = append(x.topicState.pending, n)
	if i, found := q.pendingIndex(x.id); !found {
		q.pending = slices.Insert(q.pending, i, x)
	}
}

// pendingIndex finds a topic in the sorted list of those with Pending messages.
func (q *topics) pendingIndex(id fsm.EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.pending, id, func(x *entityState, id fsm.EntityID) int { return cmp.Compare(x.id, id) })
}

// removePending removes a topic from the list of those with Pending messages.
func (q *topics) removePending(x *entityState) {
	if i, found := q.pendingIndex(x.id); found {
		q.pending = slices.Delete(q.pending, i, i+1)
	}
	x.topicState.pending = nil
}

// publishPending publishes Pending messages in the order of each topic. The topics take turns, so
// that one with many Pending messages does not delay the others. One that is overfull waits.
func (q *topics) publishPending() {
	for q.spent < pulseStepsStart {
		x := q.nextToPublish()
		if x == nil {
			return
		}
		q.lastPublished = x.id
		for end := min(q.spent+turnSteps, pulseStepsStart); len(x.topicState.pending) > 0 && q.spent < end && !x.isOverfull(); {
			q.publishNext(x)
		}
		x.lastActivity = q.times.Serving
		if len(x.topicState.pending) == 0 {
			q.removePending(x)
			q.scheduleIdle(x)
		}
		x.subs[fsm.MainQueue].ix.RemoveStaleTimers()
	}
}

// nextToPublish returns the topic with Pending messages whose turn it is, nil if none can publish.
func (q *topics) nextToPublish() *entityState {
	first, _ := q.pendingIndex(q.lastPublished + 1)
	for i := range q.pending {
		if x := q.pending[(first+i)%len(q.pending)]; !x.isOverfull() {
			return x
		}
	}
	return nil
}

// publishNext publishes the oldest Pending message of a topic, with the sequence number that it
// got when it was accepted.
func (q *topics) publishNext(x *entityState) {
	n, sub := x.topicState.pending[0], &x.subs[fsm.MainQueue]
	x.topicState.pending = x.topicState.pending[1:]
	at, _ := sub.ix.Seek(n)
	rec, patch := sub.ix.Get(at), sub.ix.Patch(at)
	var m sentMessage
	if patch != (fsm.Ref{}) {
		var err error
		if m, err = readRest(q.bodies.Read(patch)); err != nil {
			panic("fsm: read the rest of a pending message: " + err.Error())
		}
	}
	m.payload, m.ttl = q.bodies.Read(rec.Body()), rec.Life()
	copies := q.fanOut(x, n, &m, rec.Enqueued())
	if copies == 0 {
		q.releaseBodies(rec.Body(), patch)
		sub.ix.Remove(at)
		return
	}
	sub.ix.Set(at, index.Original(rec.Body(), rec.Enqueued(), copies))
	if patch != (fsm.Ref{}) {
		q.bodies.Release(patch)
		sub.ix.SetPatch(at, fsm.Ref{})
	}
}

// restVersion is the first byte of the rest of a Pending message.
const restVersion byte = 0xF1

// appendRest encodes the rest of a Pending message: its hops, session, patches and properties.
// Payload and time to live are in its record. It appends nothing if there is none of these.
func appendRest(dst []byte, m *sentMessage) []byte {
	if m.hops == 0 && !m.hasSession && len(m.patches)+len(m.properties) == 0 {
		return dst
	}
	x := fields.Encoder(dst)
	m.restFields(&x)
	return x.Buf
}

// readRest decodes what appendRest encoded; the result aliases b.
func readRest(b []byte) (m sentMessage, err error) {
	if len(b) == 0 {
		return m, nil
	}
	x := fields.Decoder(b)
	m.restFields(&x)
	return m, x.End()
}

func (m *sentMessage) restFields(x *fields.Codec) {
	fields.Version(x, restVersion)
	fields.Uint8(x, &m.hops)
	fields.Bool(x, &m.hasSession)
	fields.Bytes(x, &m.session)
	fields.Bytes(x, &m.patches)
	fields.Bytes(x, &m.properties)
}
