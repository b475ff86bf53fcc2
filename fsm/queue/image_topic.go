package queue

import (
	"math"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
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

// sharedRef reads the number of the message at the topic of which a record is a copy.
func (r *imageReader) sharedRef() fsm.Ref {
	n := fsm.SequenceNumber(r.UvarintMax(math.MaxInt64))
	return sharedRef(n, int(r.Uint32()))
}

// canHold reports whether a record can be in this sub-queue of an entity of its kind.
func (sub *subqueue) canHold(rec *record, patch fsm.Ref) bool {
	own := rec.state != fsm.Shared && rec.state != fsm.Pending && rec.flags&shared == 0
	switch {
	case sub.address.Sub == fsm.TransferQueue:
		waits := rec.state == fsm.Scheduled && rec.flags == delayed
		return own && (waits || rec.flags == 0 && (rec.state == fsm.Ready || rec.state == fsm.Forwarding)) && rec.deadLetterExpiry == 0 && rec.expires == 0 && patch != fsm.Ref{}
	case sub.address.Sub == fsm.TransferDeadLetterQueue && own: // it was a transfer, if the entity is not a queue
		return rec.state != fsm.Scheduled || rec.flags&delayed != 0 || sub.entity.kind == fsm.QueueEntity
	}
	switch main := sub.address.Sub == fsm.MainQueue; sub.entity.kind {
	case fsm.TopicEntity:
		return main && rec.flags == 0 && rec.failedDeliveries == 0 &&
			(rec.state == fsm.Shared && rec.epoch > 0 && rec.expires == 0 || rec.state == fsm.Scheduled && rec.epoch == 0 ||
				rec.state == fsm.Pending && rec.epoch == 0)
	case fsm.SubscriptionEntity:
		return rec.state != fsm.Shared && rec.state != fsm.Pending && rec.flags&shared != 0 && (rec.state != fsm.Scheduled || rec.flags&delayed != 0)
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
			r.checkCopies(x)
		}
	}
}

// attachSubscription connects one subscription to its topic. While copies are counted,
// deadLetterExpiry of a message of the topic holds the number of copies that it claims.
func (r *imageReader) attachSubscription(q *Machine, x *entityState) {
	topic := q.byID[x.topic.id]
	r.Require(topic != nil && topic.kind == fsm.TopicEntity && (x.fence == 0 || topic.settings.EnablePartitioning))
	if r.Failed() {
		return
	}
	x.topic = topic
	topic.topicState.addSubscription(x)
	list := x.rules.list
	x.rules = ruleSet{generation: q.arena.generation}
	for _, one := range list {
		r.Require(one.number <= topic.topicState.lastRule && !topic.topicState.index.Has(one.number) && !topic.topicState.isFull(one.Filter.Kind, one.parsed.Size, nil))
		q.addRule(one)
	}
	r.Require(len(x.rules.names) == len(list))
	x.rules.sortNames()
	main := &topic.subs[fsm.MainQueue].ix
	for i := range x.subs {
		walk(x.subs[i].ix.entries, 0, func(_ fsm.SequenceNumber, rec *record, _ fsm.Ref, _ uint32) bool {
			if rec.flags&shared == 0 {
				return true // it came by a transaction
			}
			at, found := main.seek(rec.originalNumber())
			if r.Require(found); !found {
				return false
			}
			c := main.write(at.pos)
			of := &c.records[c.recordIndex(at.slot)]
			r.Require(of.state == fsm.Shared && of.body.Size == rec.body.Size)
			if of.deadLetterExpiry == 0 {
				of.deadLetterExpiry, of.epoch = of.epoch, 0
			}
			of.epoch++
			return !r.Failed()
		})
	}
}

// checkCopies compares the numbers of copies that the messages of a topic claim with those counted.
func (r *imageReader) checkCopies(x *entityState) {
	main := &x.subs[fsm.MainQueue].ix
	for pos := range main.entries {
		c := main.write(pos)
		for slot := c.live.next(0); slot >= 0; slot = c.live.next(slot + 1) {
			rec := &c.records[c.recordIndex(slot)]
			r.Require(rec.state != fsm.Shared || rec.epoch == rec.deadLetterExpiry)
			rec.deadLetterExpiry = 0
		}
	}
}
