package fsm

// peekMax is the number of messages one Peek gives at most.
const peekMax = 4096

// Counts says how many messages a queue holds; false when there is no such queue.
func (q *Queues) Counts(id EntityID) (Counts, bool) {
	x := q.byID[id]
	if x == nil {
		return Counts{}, false
	}
	main, dead := &x.subs[MainQueue].ix, &x.subs[DeadLetterQueue].ix
	return Counts{
		Active:     main.counts[Ready] + main.counts[Locked],
		Locked:     main.counts[Locked],
		Deferred:   main.counts[Deferred],
		Scheduled:  main.counts[Scheduled],
		DeadLetter: dead.total() - dead.counts[Taken],
		Bytes:      main.bytes + dead.bytes,
	}, true
}

// Settings are those of a queue; false when there is no such queue.
func (q *Queues) Settings(id EntityID) (QueueSettings, bool) {
	if x := q.byID[id]; x != nil {
		return *x.settings, true
	}
	return QueueSettings{}, false
}

// Ready is the number of messages that a LockMessages could give out, and of those that
// have expired since the last pulse; 0 when there is no such queue.
func (q *Queues) Ready(a Address) uint64 {
	if sub := q.find(a); sub != nil {
		return sub.ix.counts[Ready]
	}
	return 0
}

// Peek returns up to most messages from a sequence number on, in order and in every
// state but Taken, and changes nothing. At most 4096 are given.
func (q *Queues) Peek(a Address, from SequenceNumber, most int) []Delivery {
	sub := q.find(a)
	if sub == nil || most <= 0 {
		return nil
	}
	most = min(most, peekMax)
	base, _ := split(from)
	pos, _ := sub.ix.find(base)
	var found []Delivery
	walk(sub.ix.entries[pos:], from, func(n SequenceNumber, rec *record, patch Ref) bool {
		if rec.state != Taken {
			found = append(found, sub.newDelivery(n, rec, patch))
		}
		return len(found) < most
	})
	return found
}

// Entities is the number of queues.
func (q *Queues) Entities() int { return len(q.queues) }

// Messages is the number of messages stored, in whatever state.
func (q *Queues) Messages() uint64 {
	n := uint64(0)
	for _, x := range q.queues {
		n += x.subs[MainQueue].ix.total() + x.subs[DeadLetterQueue].ix.total()
	}
	return n
}
