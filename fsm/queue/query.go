package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/fsm/totals"
)

// Counts returns the numbers of messages of an entity; false if there is no such entity.
func (q *Machine) Counts(id fsm.EntityID) (fsm.Counts, bool) {
	x := q.byID[id]
	if x == nil {
		return fsm.Counts{}, false
	}
	main, dead := &x.subs[fsm.MainQueue], &x.subs[fsm.DeadLetterQueue]
	return fsm.Counts{
		Active:             main.ix.Count(fsm.Ready) + main.ix.Count(fsm.Locked) + main.ix.Count(fsm.Forwarding) - main.awaitingTransfer(),
		Locked:             main.ix.Count(fsm.Locked),
		Deferred:           main.ix.Count(fsm.Deferred),
		Scheduled:          main.ix.Count(fsm.Scheduled) + main.ix.Count(fsm.Pending),
		DeadLetter:         dead.storedCount() - dead.awaitingTransfer(),
		Bytes:              x.storedBytes(),
		Transfer:           main.awaitingTransfer() + dead.awaitingTransfer() + x.subs[fsm.TransferQueue].awaitingTransfer(),
		TransferDeadLetter: x.subs[fsm.TransferDeadLetterQueue].storedCount(),
		Subscriptions:      x.subscriptions(),
		Sessions:           x.sessionsUsed(),
		SQLFilters:         x.sqlFilters(),
		CorrelationFilters: x.correlationFilters(),
		LastUse:            x.lastUse,
	}, true
}

// Totals returns what happened to the messages of an entity so far; false if there is no such entity.
func (q *Machine) Totals(id fsm.EntityID) (totals.Totals, bool) {
	x := q.byID[id]
	if x == nil {
		return totals.Totals{}, false
	}
	return x.totals, true
}

// sqlFilters returns the number of rules of a topic that are not correlation filters.
func (x *entityState) sqlFilters() uint64 {
	if x.topicState == nil {
		return 0
	}
	return uint64(len(x.topicState.trueRules) + len(x.topicState.sqlRules) + x.topicState.falseRules)
}

func (x *entityState) correlationFilters() uint64 {
	if x.topicState == nil {
		return 0
	}
	return uint64(x.topicState.index.Len())
}

// subscriptions returns the number of subscriptions of a topic.
func (x *entityState) subscriptions() uint64 {
	if x.topicState == nil {
		return 0
	}
	return uint64(len(x.topicState.subscriptions))
}

// Settings returns the settings of an entity; false if there is no such entity.
func (q *Machine) Settings(id fsm.EntityID) (fsm.EntitySettings, bool) {
	if x := q.byID[id]; x != nil {
		return *x.settings, true
	}
	return fsm.EntitySettings{}, false
}

// Ready returns the number of messages that a LockMessages could deliver, including those that have
// expired since the last pulse; 0 if there is no such sub-queue.
func (q *Machine) Ready(a fsm.Address) uint64 {
	if sub := q.subqueueAt(a); sub != nil {
		return sub.readyToReceive()
	}
	return 0
}

// Peek returns up to most messages from a sequence number on, at most 4096, in order and in every
// state but Deleting. It changes nothing.
func (q *Machine) Peek(a fsm.Address, from fsm.SequenceNumber, most int) []fsm.Delivery {
	sub := q.subqueueAt(a)
	if sub == nil || most <= 0 || sub.hasNoReceivers() {
		return nil
	}
	most = min(most, peekMax)
	var found []fsm.Delivery
	sub.ix.Freeze().Walk(from, func(n fsm.SequenceNumber, rec *index.Record, patch fsm.Ref, _ uint32) bool {
		if rec.State() != fsm.Deleting {
			found = append(found, q.peeked(sub, n, rec, patch))
		}
		return len(found) < most
	})
	return found
}

// Entities returns the number of entities.
func (q *Machine) Entities() int { return len(q.entities) }

// Messages returns the number of stored messages in all states, for a topic those that are
// scheduled or pending.
func (q *Machine) Messages() uint64 {
	n := uint64(0)
	for _, x := range q.entities {
		for i := range x.subs {
			n += x.subs[i].ix.Total() - x.subs[i].ix.Count(fsm.Shared)
		}
	}
	return n
}

// TopicOf returns the topic of a subscription, 0 for other entities; false if there is no such
// entity. It does not change while the entity exists.
func (q *Machine) TopicOf(id fsm.EntityID) (topic fsm.EntityID, found bool) {
	x := q.byID[id]
	if x == nil {
		return 0, false
	}
	if x.topic != nil {
		topic = x.topic.id
	}
	return topic, true
}

// Times returns the times of the newest entry.
func (q *Machine) Times() fsm.Times { return q.times }

// NextDeadline returns times at or before which something is due for a Pulse, one on each timeline; 0
// for none. A time that the newest entry has reached means that a Pulse is due now.
func (q *Machine) NextDeadline() fsm.Times {
	if len(q.pendingReleases) > 0 || q.nextToPublish() != nil {
		return fsm.Times{Wall: max(q.times.Wall, 1)}
	}
	due := fsm.Times{Serving: q.table.Due()}
	due.Wall, due.Serving = q.arena.NextDue(fsm.WallTime), fsm.Earlier(due.Serving, q.arena.NextDue(fsm.ServingTime))
	return due
}
