package fsm

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm/filter"
)

// Publishing is bounded by steps, which say how much the rules of a topic do with a message
// (see package filter) and how much is made of it. A machine below Level 2 knows no bounds.
//
//	one rule, one message       ruleStepsMax; over it the rule has failed
//	one entry, all messages     none is begun behind entryStepsStart, so entryStepsMax at most
//	what is not begun           Pending, published by the pulses that follow
//
// A step takes about a nanosecond at worst, mostly half of one.
const (
	// ruleStepsMax bounds what one rule takes for one message: its filter, its action and the
	// copy that the action makes.
	ruleStepsMax = 16384
	// messageStepsMax is what one message takes at most, but for patches that it brings along
	// from where it was forwarded: ruleStepsMax for each of sqlRulesMax rules, as much for the
	// actions of all correlation filters, and as much again, of which some two thirds are needed
	// at most, to find those and to make copies.
	messageStepsMax = 3 * sqlRulesMax * ruleStepsMax
	// entryStepsStart is what an entry may have taken when a message is begun, and
	// pulseStepsStart when that is one of the Pending ones: these leave something to the
	// commands behind them.
	entryStepsStart = sqlRulesMax / 4 * ruleStepsMax
	pulseStepsStart = entryStepsStart / 2
	// entryStepsMax is what one entry takes at most.
	entryStepsMax = entryStepsStart + messageStepsMax
	// turnSteps is what the Pending messages of one topic take before those of the next one
	// have their turn.
	turnSteps = pulseStepsStart / 8
)

// What a message takes besides its rules.
const (
	stepsMessage      = 512
	stepsPropertyByte = 16   // a byte of its properties, which are taken apart
	stepsMatch        = 64   // a correlation filter that takes it
	stepsCopy         = 128  // a copy for a subscription
	stepsTried        = 32   // an action, within the budget of its rule or not
	stepsChanged      = 2048 // one that an action or a failure changed, more
	patchBytes        = 16   // of patches that a copy brings along, in one step
)

// bounded says whether the machine counts.
func (q *Queues) bounded() bool { return q.level >= levelSteps }

// begins says whether another message of the topic may be published by the entry at hand.
func (q *Queues) begins(x *queue) bool {
	return !q.bounded() || len(x.hub.pending) == 0 && q.spent < entryStepsStart
}

// ruleBudget is what a rule may take that took so many steps already.
func (q *Queues) ruleBudget(taken uint64) uint64 {
	if !q.bounded() {
		return filter.Unlimited
	}
	return ruleStepsMax - min(taken, ruleStepsMax)
}

// sharedBudget is what the actions of all correlation filters of a subscription may take
// together for one message. There are up to correlationRulesMax of them in a topic, more than
// an entry has steps for; subscriptions take nothing from each other.
func (q *Queues) sharedBudget(h *hub) uint64 {
	if !q.bounded() {
		return filter.Unlimited
	}
	return sqlRulesMax * ruleStepsMax / uint64(max(1, len(h.subscriptions)))
}

// taken counts steps of the entry at hand.
func (q *Queues) taken(steps uint64) {
	if q.bounded() {
		q.spent += steps
	}
}

// Exceeded counts the times that a rule was over its budget, since this replica was opened.
func (q *Queues) Exceeded() uint64 { return q.exceeded }

// Steps is what publishing has taken in the newest entry.
func (q *Queues) Steps() uint64 { return q.spent }

// EntryStepsMax is what publishing takes in one entry at most.
func EntryStepsMax() uint64 { return entryStepsMax }

// pend stores a message of a topic that was accepted and is to be published later.
func (q *Queues) pend(x *queue, n SequenceNumber, m *sent) {
	sub := &x.subs[MainQueue]
	owner := Owner{Address: sub.address, Sequence: n}
	at := q.insert(sub, n, record{
		body: q.bodies.Append(owner, m.payload), enqueued: q.clock, state: Pending, expires: Instant(m.ttl),
	})
	if rest := appendRest(nil, m); len(rest) > 0 {
		owner.Patch = true
		sub.ix.setPatch(at, q.bodies.Append(owner, rest))
	}
	q.waits(x, n)
}

// waits notes the newest Pending message of a topic.
func (q *Queues) waits(x *queue, n SequenceNumber) {
	x.hub.pending = append(x.hub.pending, n)
	if i, found := q.waiting(x.id); !found {
		q.pending = slices.Insert(q.pending, i, x)
	}
}

// waiting finds a topic among those with Pending messages.
func (q *Queues) waiting(id EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.pending, id, func(x *queue, id EntityID) int { return cmp.Compare(x.id, id) })
}

// published notes that a topic has no Pending messages any more.
func (q *Queues) published(x *queue) {
	if i, found := q.waiting(x.id); found {
		q.pending = slices.Delete(q.pending, i, i+1)
	}
	x.hub.pending = nil
}

// publishPending publishes messages that were accepted earlier, in the order of each topic.
// The topics take turns, so that one with a great many does not keep the others waiting.
func (q *Queues) publishPending() {
	for len(q.pending) > 0 && q.spent < pulseStepsStart {
		i, _ := q.waiting(q.served + 1)
		x := q.pending[i%len(q.pending)]
		q.served = x.id
		for end := min(q.spent+turnSteps, pulseStepsStart); len(x.hub.pending) > 0 && q.spent < end; {
			q.publishNext(x)
		}
		x.active = q.clock
		if len(x.hub.pending) == 0 {
			q.published(x)
			q.expectIdle(x)
		}
		q.tidy(&x.subs[MainQueue])
	}
}

// publishNext publishes the oldest Pending message of a topic, under the number that it has.
func (q *Queues) publishNext(x *queue) {
	n, sub := x.hub.pending[0], &x.subs[MainQueue]
	x.hub.pending = x.hub.pending[1:]
	at, _ := sub.ix.seek(n)
	rec, patch := sub.ix.get(at), sub.ix.patch(at)
	var m sent
	if patch != (Ref{}) {
		var err error
		if m, err = readRest(q.bodies.Read(patch)); err != nil {
			panic("fsm: what a pending message brought along: " + err.Error())
		}
	}
	m.payload, m.ttl = q.bodies.Read(rec.body), Millis(rec.expires)
	copies := q.fanOut(x, n, &m, rec.enqueued)
	if copies == 0 {
		q.release(rec.body, patch)
		sub.ix.remove(at)
		return
	}
	sub.ix.set(at, record{body: rec.body, enqueued: rec.enqueued, state: Shared, epoch: uint32(copies)})
	if patch != (Ref{}) {
		q.bodies.Release(patch)
		sub.ix.setPatch(at, Ref{})
	}
}

// restVersion is the first byte of what is stored beside the payload of a Pending message.
const restVersion byte = 1

// appendRest writes what a Pending message brings along beside its payload and time to live.
// Nothing is no bytes.
func appendRest(dst []byte, m *sent) []byte {
	if m.hops == 0 && !m.hasSession && len(m.patches)+len(m.properties) == 0 {
		return dst
	}
	dst = appendBool(append(dst, restVersion, m.hops), m.hasSession)
	dst = appendBytes(appendBytes(dst, m.session), m.patches)
	return appendBytes(dst, m.properties)
}

// readRest is the opposite of appendRest; what it returns aliases b.
func readRest(b []byte) (m sent, err error) {
	if len(b) == 0 {
		return m, nil
	}
	r := reader{b: b}
	if version := r.byte(); version != restVersion {
		r.fail(unknownVersion(version, restVersion, restVersion))
	}
	m.hops, m.hasSession = r.byte(), r.bool()
	m.session, m.patches, m.properties = r.bytes(), r.bytes(), r.bytes()
	return m, r.end()
}
