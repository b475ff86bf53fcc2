package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/index"
)

// rules writes the state of a topic or subscription about rules.
func (w *imageWriter) rules(x *frozenEntity) {
	switch x.kind {
	case fsm.TopicEntity:
		w.Uvarint(x.newest)
	case fsm.SubscriptionEntity:
		w.Uvarint(uint64(x.topic))
		w.Count(len(x.rules))
		for _, r := range x.rules {
			w.Uvarint(r.number)
			w.Rule(&r.Rule)
			if r.Filter.Kind == fsm.CorrelationFilter {
				w.Uvarint(uint64(r.indexedBy + 1)) // -1 is a filter without conditions
			}
			w.FlushIfFull()
		}
	case fsm.QueueEntity:
	}
}

// rules reads it. Until all entities are read (attachSubscriptions), a placeholder with the id of
// the topic represents it.
func (r *imageReader) rules(x *entityState) {
	switch x.kind {
	case fsm.TopicEntity:
		x.topicState.lastRule = r.Uvarint()
	case fsm.SubscriptionEntity:
		x.topic = &entityState{id: fsm.EntityID(r.Uvarint())}
		r.Repeat(sqlRulesMax+correlationRulesMax, func() { r.numberedRule(x) })
	case fsm.QueueEntity:
	}
}

func (r *imageReader) numberedRule(x *entityState) {
	number, read, filed := r.Uvarint(), r.Rule(), filter.ByFewest
	if read.Filter.Kind == fsm.CorrelationFilter {
		filed = int(r.UvarintMax(filter.ConditionsMax)) - 1
		r.Require(filed < len(read.Filter.Conditions) && (filed >= 0) == (len(read.Filter.Conditions) > 0))
	}
	ready, err := fsm.ParseRule(&read)
	n := len(x.rules.list)
	r.Require(err == nil && number != 0 && (n == 0 || x.rules.list[n-1].number < number))
	x.rules.list = append(x.rules.list, &rule{Rule: read, parsed: ready, number: number, subscription: x, indexedBy: filed})
}

// canHold reports whether a record can be in this sub-queue of an entity of its kind.
func (sub *subqueue) canHold(rec *index.Record, patch fsm.Ref) bool {
	own := rec.State() != fsm.Shared && rec.State() != fsm.Pending && !rec.IsCopy()
	switch {
	case sub.address.Sub == fsm.MainQueue && rec.DeadLetterExpiry() != 0, sub.address.Sub != fsm.DeadLetterQueue && rec.IsHeld():
		return false
	case sub.address.Sub == fsm.TransferQueue:
		return rec.CanTransfer() && patch != fsm.Ref{}
	case sub.address.Sub == fsm.TransferDeadLetterQueue && own: // it was a transfer, if the entity is not a queue
		return rec.State() != fsm.Scheduled || rec.IsDelayed() || sub.entity.kind == fsm.QueueEntity
	}
	switch sub.entity.kind {
	case fsm.TopicEntity:
		return sub.address.Sub == fsm.MainQueue && rec.CanBeOfTopic()
	case fsm.SubscriptionEntity:
		return rec.State() != fsm.Shared && rec.State() != fsm.Pending && rec.IsCopy() && (rec.State() != fsm.Scheduled || rec.IsDelayed())
	case fsm.QueueEntity:
	}
	return own
}

// attachSubscriptions connects subscriptions and topics after all are read: every copy must have
// its message at the topic, and every message as many copies as it counts.
func (r *imageReader) attachSubscriptions(q *Machine) {
	for _, x := range q.entities {
		if !r.Failed() && x.kind == fsm.SubscriptionEntity {
			r.attachSubscription(q, x)
		}
	}
	for _, x := range q.entities {
		if !r.Failed() && x.kind == fsm.TopicEntity {
			r.Require(x.subs[fsm.MainQueue].ix.CheckCopies())
		}
	}
}

// attachSubscription connects one subscription to its topic.
func (r *imageReader) attachSubscription(q *Machine, x *entityState) {
	topic := q.byID[x.topic.id]
	r.Require(topic != nil && topic.kind == fsm.TopicEntity && (x.fence == 0 || topic.settings.EnablePartitioning))
	if r.Failed() {
		return
	}
	x.topic = topic
	topic.topicState.addSubscription(x)
	list := x.rules.list
	x.rules = ruleSet{generation: *q.arena.Generation()}
	for _, one := range list {
		r.Require(one.number <= topic.topicState.lastRule && !topic.topicState.index.Has(one.number) && !topic.topicState.isFull(one.Filter.Kind, one.parsed.Size, nil))
		q.addRule(one)
	}
	r.Require(len(x.rules.names) == len(list))
	x.rules.sortNames()
	main := &topic.subs[fsm.MainQueue].ix
	for i := range x.subs {
		x.subs[i].ix.Freeze().Walk(0, func(_ fsm.SequenceNumber, rec *index.Record, _ fsm.Ref, _ uint32) bool {
			if !rec.IsCopy() {
				return true // it came by a transaction
			}
			r.Require(main.ClaimCopy(rec.OriginalNumber(), rec.Size()))
			return !r.Failed()
		})
	}
}
