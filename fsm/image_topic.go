package fsm

import (
	"math"

	"github.com/peeklock/peeklock/fsm/filter"
)

// rules writes the state of a topic or subscription about rules.
func (w *imageWriter) rules(x *frozenEntity) {
	switch x.kind {
	case TopicEntity:
		w.uvarint(x.newest)
	case SubscriptionEntity:
		w.uvarint(uint64(x.topic))
		w.count(len(x.rules))
		for _, r := range x.rules {
			w.uvarint(r.number)
			w.rule(&r.Rule)
			if r.Filter.Kind == CorrelationFilter {
				w.uvarint(uint64(r.indexedBy + 1)) // -1 is a filter without conditions
			}
			w.flushIfFull()
		}
	case QueueEntity:
	}
}

// rules reads it. Until all entities are read (attachSubscriptions), a placeholder with the id of
// the topic represents it.
func (r *imageReader) rules(x *entityState) {
	switch x.kind {
	case TopicEntity:
		x.topicState.lastRule = r.uvarint()
	case SubscriptionEntity:
		x.topic = &entityState{id: EntityID(r.uvarint())}
		r.repeat(sqlRulesMax+correlationRulesMax, func() { r.numberedRule(x) })
	case QueueEntity:
	}
}

func (r *imageReader) numberedRule(x *entityState) {
	number, read, filed := r.uvarint(), r.rule(), filter.ByFewest
	if read.Filter.Kind == CorrelationFilter {
		filed = int(r.uvarintMax(filter.ConditionsMax)) - 1
		r.require(filed < len(read.Filter.Conditions) && (filed >= 0) == (len(read.Filter.Conditions) > 0))
	}
	ready, err := parseRule(&read)
	n := len(x.rules.list)
	r.require(err == nil && number != 0 && (n == 0 || x.rules.list[n-1].number < number))
	x.rules.list = append(x.rules.list, &rule{Rule: read, parsed: ready, number: number, subscription: x, indexedBy: filed})
}

// sharedRef reads the number of the message at the topic of which a record is a copy.
func (r *imageReader) sharedRef() Ref {
	n := SequenceNumber(r.uvarintMax(math.MaxInt64))
	return sharedRef(n, int(r.uint32()))
}

// canHold reports whether a record can be in this sub-queue of an entity of its kind.
func (sub *subqueue) canHold(rec *record, patch Ref) bool {
	own := rec.state != Shared && rec.state != Pending && rec.flags&shared == 0
	switch {
	case sub.address.Sub == TransferQueue:
		waits := rec.state == Scheduled && rec.flags == delayed
		return own && (waits || rec.flags == 0 && (rec.state == Ready || rec.state == Forwarding)) && rec.deadLetterExpiry == 0 && rec.expires == 0 && patch != Ref{}
	case sub.address.Sub == TransferDeadLetterQueue && own: // it was a transfer, if the entity is not a queue
		return rec.state != Scheduled || rec.flags&delayed != 0 || sub.entity.kind == QueueEntity
	}
	switch main := sub.address.Sub == MainQueue; sub.entity.kind {
	case TopicEntity:
		return main && rec.flags == 0 && rec.failedDeliveries == 0 &&
			(rec.state == Shared && rec.epoch > 0 && rec.expires == 0 || rec.state == Scheduled && rec.epoch == 0 ||
				rec.state == Pending && rec.epoch == 0)
	case SubscriptionEntity:
		return rec.state != Shared && rec.state != Pending && rec.flags&shared != 0 && (rec.state != Scheduled || rec.flags&delayed != 0)
	case QueueEntity:
	}
	return own
}

// attachSubscriptions connects subscriptions and topics after all are read: every copy must have
// its message at the topic, and every message as many copies as it counts.
func (r *imageReader) attachSubscriptions(q *Queues) {
	for _, x := range q.entities {
		if !r.failed() && x.kind == SubscriptionEntity {
			r.attachSubscription(q, x)
		}
	}
	for _, x := range q.entities {
		if !r.failed() && x.kind == TopicEntity {
			r.checkCopies(x)
		}
	}
}

// attachSubscription connects one subscription to its topic. While copies are counted,
// deadLetterExpiry of a message of the topic holds the number of copies that it claims.
func (r *imageReader) attachSubscription(q *Queues, x *entityState) {
	topic := q.byID[x.topic.id]
	r.require(topic != nil && topic.kind == TopicEntity && (x.fence == 0 || topic.settings.EnablePartitioning))
	if r.failed() {
		return
	}
	x.topic = topic
	topic.topicState.addSubscription(x)
	list := x.rules.list
	x.rules = ruleSet{generation: q.arena.generation}
	for _, one := range list {
		r.require(one.number <= topic.topicState.lastRule && !topic.topicState.index.Has(one.number) && !topic.topicState.isFull(one.Filter.Kind, one.parsed.size, nil))
		q.addRule(one)
	}
	r.require(len(x.rules.names) == len(list))
	x.rules.sortNames()
	main := &topic.subs[MainQueue].ix
	for i := range x.subs {
		walk(x.subs[i].ix.entries, 0, func(_ SequenceNumber, rec *record, _ Ref, _ uint32) bool {
			if rec.flags&shared == 0 {
				return true // it came by a transaction
			}
			at, found := main.seek(rec.originalNumber())
			if r.require(found); !found {
				return false
			}
			c := main.write(at.pos)
			of := &c.records[c.recordIndex(at.slot)]
			r.require(of.state == Shared && of.body.Size == rec.body.Size)
			if of.deadLetterExpiry == 0 {
				of.deadLetterExpiry, of.epoch = of.epoch, 0
			}
			of.epoch++
			return !r.failed()
		})
	}
}

// checkCopies compares the numbers of copies that the messages of a topic claim with those counted.
func (r *imageReader) checkCopies(x *entityState) {
	main := &x.subs[MainQueue].ix
	for pos := range main.entries {
		c := main.write(pos)
		for slot := c.live.next(0); slot >= 0; slot = c.live.next(slot + 1) {
			rec := &c.records[c.recordIndex(slot)]
			r.require(rec.state != Shared || rec.epoch == rec.deadLetterExpiry)
			rec.deadLetterExpiry = 0
		}
	}
}
