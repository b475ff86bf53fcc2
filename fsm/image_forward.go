package fsm

import "math"

// outbox writes what is remembered of forwarding from a sub-queue, behind its messages.
func (w *imageWriter) outbox(o *outbox) {
	if o == nil {
		w.uvarint(0)
		return
	}
	w.uvarint(o.serial)
	w.count(len(o.numbers))
	if len(o.numbers) == 0 {
		return
	}
	w.uvarint(uint64(o.to.Partition))
	w.uvarint(uint64(o.to.Entity))
	before := SequenceNumber(0)
	for _, n := range o.numbers {
		w.uvarint(uint64(n - before))
		before = n
		w.spill()
	}
}

// outbox reads it back: the messages of the batch are all that are leaving.
func (r *imageReader) outbox(q *Queues, sub *subqueue) {
	serial := r.uvarint()
	if serial == 0 {
		r.want(sub.ix.counts[Leaving] == 0)
		return
	}
	o := &outbox{serial: serial}
	before := SequenceNumber(0)
	n := r.limited(commandMessagesMax)
	if n > 0 {
		o.to = Destination{Partition: PartitionID(r.uint32()), Entity: EntityID(r.uvarint())}
		r.want(o.to.Partition != CatalogPartition && o.to.Entity != 0)
	}
	for ; n > 0 && r.err == nil; n-- {
		number := before + SequenceNumber(r.limited(math.MaxInt64))
		r.want(before < number && sub.leaving(number))
		o.numbers = append(o.numbers, number)
		before = number
	}
	r.want(sub.address.forwards() && sub.ix.counts[Leaving] == uint64(len(o.numbers)))
	sub.out, sub.resumed = o, o.away()
	if sub.resumed {
		q.raise(sub)
	}
}

func (sub *subqueue) leaving(n SequenceNumber) bool {
	at, found := sub.ix.seek(n)
	return found && sub.ix.get(at).state == Leaving
}

// arrivals writes the last batch of every source.
func (w *imageWriter) arrivals(list []arrival) {
	w.count(len(list))
	for i := range list {
		a := &list[i]
		w.uvarint(uint64(a.from.Partition))
		w.address(a.from.Address)
		w.uvarint(a.serial)
		w.instant(a.at)
		w.uvarint(uint64(a.count))
		w.byte(byte(a.refused))
		w.bool(a.codes != nil)
		for _, c := range a.codes {
			w.byte(byte(c))
		}
		w.spill()
	}
}

func (r *imageReader) arrivals(a *arrivals) {
	r.more(transferSourcesMax, func() {
		x := arrival{from: Outbox{Partition: PartitionID(r.uint32()), Address: r.address()}}
		x.serial, x.at = r.uvarint(), r.instant()
		x.count, x.refused = uint16(r.limited(commandMessagesMax)), Code(r.byte())
		n := len(a.list)
		r.want(x.from.Partition != CatalogPartition && x.from.Address.Entity != 0 && x.from.Address.forwards())
		r.want(x.serial != 0 && x.count != 0 && (n == 0 || a.list[n-1].from.compare(x.from) < 0))
		if r.bool() {
			r.want(x.refused == OK)
			for range x.count {
				x.codes = append(x.codes, Code(r.byte()))
			}
		}
		a.list = append(a.list, x)
	})
}
