package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/index"
)

// Publishing is limited by steps: they count the work of the rules of a topic for a message (see
// package filter) and of making its copies.
//
//	one rule, one message       ruleStepsMax; the rule fails if it needs more
//	one entry, all messages     no message begins after entryStepsStart, so entryStepsMax at most
//	messages that do not begin  Pending, published by the following pulses
//
// Most steps take half a nanosecond, and less than one if they compute. Those of correlation filters that
// match wait for memory and take 1 to 2 ns (BenchmarkPublishWorstFilters).
const (
	ruleStepsMax = evaluate.StepsMax
	// messageStepsMax is the most that one message takes, apart from patches that it already has
	// because it was forwarded: ruleStepsMax for each of sqlRulesMax rules, as much for the actions
	// of all correlation filters, and as much again to find those filters and to make copies, of
	// which at most some two thirds are needed.
	messageStepsMax = 3 * sqlRulesMax * ruleStepsMax
	// correlationStepsMax is what the actions of all correlation filters may take together for one message:
	// some 3,000 short actions, so that a message whose rules are all as expensive as they can be takes less
	// than 50 ms.
	correlationStepsMax = sqlRulesMax * ruleStepsMax / 4
	// An entry begins a new message while it has taken fewer than entryStepsStart steps, and a
	// Pending one while it has taken fewer than pulseStepsStart: that leaves steps to the commands
	// that follow the pulse in the entry.
	entryStepsStart = 8_192_000
	pulseStepsStart = entryStepsStart / 2
	// entryStepsMax is the most that one entry takes.
	entryStepsMax = entryStepsStart + messageStepsMax
	// turnSteps is the number of steps after which the Pending messages of the next topic have
	// their turn.
	turnSteps = pulseStepsStart / 8
)

// Steps that a message takes in addition to those of its rules.
const (
	stepsMessage       = 512
	stepsPropertyByte  = 16   // a byte of its properties, which are decoded
	stepsMatch         = 64   // a correlation filter that matches
	stepsCopy          = 128  // a copy for a subscription
	stepsActionAttempt = 32   // an action, within the budget of its rule or not
	stepsChangedCopy   = 2048 // in addition, a copy that an action or a failure changed
	patchBytes         = 16   // bytes of the patches of a copy per step
)

// mayPublish reports whether the current entry may publish another message of the topic.
func (q *Machine) mayPublish(x *entityState) bool {
	return len(x.topicState.pending) == 0 && q.spent < entryStepsStart
}

// ruleBudget returns the steps that a rule has left after it took some.
func ruleBudget(taken uint64) uint64 { return ruleStepsMax - min(taken, ruleStepsMax) }

// sharedBudget returns the steps that the actions of all correlation filters of a subscription may
// take together for one message. A topic has up to correlationRulesMax of them, more than an entry
// has steps for; each subscription has a budget of its own.
func (h *topicState) sharedBudget() uint64 {
	return correlationStepsMax / uint64(max(1, len(h.subscriptions)))
}

// Exceeded returns how often a rule exceeded its budget since this replica was opened.
func (q *Machine) Exceeded() uint64 { return q.exceeded }

// Steps returns the steps that publishing took in the newest entry.
func (q *Machine) Steps() uint64 { return q.spent }

// EntryStepsMax returns the most steps that publishing takes in one entry.
func EntryStepsMax() uint64 { return entryStepsMax }

// storePending stores an accepted message of a topic as Pending, to be published by a later pulse.
func (q *Machine) storePending(x *entityState, n fsm.SequenceNumber, m *sentMessage) {
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
func (q *Machine) appendPending(x *entityState, n fsm.SequenceNumber) {
	x.topicState.pending = append(x.topicState.pending, n)
	if i, found := q.pendingIndex(x.id); !found {
		q.pending = slices.Insert(q.pending, i, x)
	}
}

// pendingIndex finds a topic in the sorted list of those with Pending messages.
func (q *Machine) pendingIndex(id fsm.EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.pending, id, func(x *entityState, id fsm.EntityID) int { return cmp.Compare(x.id, id) })
}

// removePending removes a topic from the list of those with Pending messages.
func (q *Machine) removePending(x *entityState) {
	if i, found := q.pendingIndex(x.id); found {
		q.pending = slices.Delete(q.pending, i, i+1)
	}
	x.topicState.pending = nil
}

// publishPending publishes Pending messages in the order of each topic. The topics take turns, so
// that one with many Pending messages does not delay the others.
func (q *Machine) publishPending() {
	for len(q.pending) > 0 && q.spent < pulseStepsStart {
		i, _ := q.pendingIndex(q.lastPublished + 1)
		x := q.pending[i%len(q.pending)]
		q.lastPublished = x.id
		for end := min(q.spent+turnSteps, pulseStepsStart); len(x.topicState.pending) > 0 && q.spent < end; {
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

// publishNext publishes the oldest Pending message of a topic, with the sequence number that it
// got when it was accepted.
func (q *Machine) publishNext(x *entityState) {
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
