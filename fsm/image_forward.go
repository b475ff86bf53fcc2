package fsm

import (
	"math"
	"slices"
)

// outbox writes the forwarding state of a sub-queue, after its messages.
func (w *imageWriter) outbox(o *outbox) {
	if o == nil {
		w.uvarint(0)
		return
	}
	w.uvarint(o.serial)
	w.uvarint(o.epoch)
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
		w.flushIfFull()
	}
}

// outbox reads the forwarding state: the messages of the batch are all that are Forwarding.
func (r *imageReader) outbox(q *Queues, sub *subqueue) {
	serial := r.uvarint()
	if serial == 0 {
		r.require(sub.ix.counts[Forwarding] == 0)
		return
	}
	o := &outbox{serial: serial, epoch: r.uvarint()}
	before := SequenceNumber(0)
	n := r.uvarintMax(commandMessagesMax)
	if n > 0 {
		o.to = Destination{Partition: PartitionID(r.uint32()), Entity: EntityID(r.uvarint())}
		r.require(o.to.Partition != CatalogPartition && o.to.Entity != 0)
	}
	for ; n > 0 && !r.failed(); n-- {
		number := before + SequenceNumber(r.uvarintMax(math.MaxInt64))
		r.require(before < number && sub.isForwarding(number))
		o.numbers = append(o.numbers, number)
		before = number
	}
	r.require(sub.address.canForward() && sub.ix.counts[Forwarding] == uint64(len(o.numbers)))
	sub.out, sub.resumed = o, o.hasBatch()
	if sub.resumed {
		q.notifyReady(sub)
	}
}

func (sub *subqueue) isForwarding(n SequenceNumber) bool {
	at, found := sub.ix.seek(n)
	return found && sub.ix.get(at).state == Forwarding
}

// sourceBatches writes the last batch of every source.
func (w *imageWriter) sourceBatches(list []sourceBatch) {
	w.count(len(list))
	for i := range list {
		a := &list[i]
		w.uvarint(uint64(a.from.Partition))
		w.address(a.from.Address)
		w.uvarint(a.epoch)
		w.count(len(a.former))
		for _, epoch := range a.former {
			w.uvarint(epoch)
		}
		w.fixed64(a.numbers)
		w.uvarint(a.serial)
		w.instant(a.at)
		w.uvarint(uint64(a.count))
		w.byte(byte(a.refused))
		w.bool(a.codes != nil)
		for _, c := range a.codes {
			w.byte(byte(c))
		}
		w.flushIfFull()
	}
}

func (r *imageReader) sourceBatches(a *sourceBatches) {
	r.repeat(transferSourcesMax, func() {
		x := sourceBatch{from: Outbox{Partition: PartitionID(r.uint32()), Address: r.address()}, epoch: r.uvarint()}
		r.repeat(formerEpochsMax, func() {
			former := r.uvarint()
			r.require(former != x.epoch && !slices.Contains(x.former, former))
			x.former = append(x.former, former)
		})
		x.numbers, x.serial, x.at = r.fixed64(), r.uvarint(), r.instant()
		x.count, x.refused = uint16(r.uvarintMax(commandMessagesMax)), Code(r.byte())
		n := len(a.list)
		r.require(x.from.Partition != CatalogPartition && x.from.Address.Entity != 0 && x.from.Address.canForward())
		r.require(x.numbers != 0 && x.serial != 0 && x.count != 0 && (n == 0 || a.list[n-1].from.compare(x.from) < 0))
		if r.bool() {
			r.require(x.refused == OK)
			for range x.count {
				x.codes = append(x.codes, Code(r.byte()))
			}
		}
		a.list = append(a.list, x)
	})
}
