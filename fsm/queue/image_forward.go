package queue

import (
	"math"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// outbox writes the forwarding state of a sub-queue, after its messages.
func (w *imageWriter) outbox(o *outbox) {
	if o == nil {
		w.Uvarint(0)
		return
	}
	w.Uvarint(o.serial)
	w.Uvarint(o.epoch)
	w.Count(len(o.numbers))
	if len(o.numbers) == 0 {
		return
	}
	w.Uvarint(uint64(o.to.Partition))
	w.Uvarint(uint64(o.to.Entity))
	w.Text(o.name)
	before := fsm.SequenceNumber(0)
	for _, n := range o.numbers {
		w.Uvarint(uint64(n - before))
		before = n
		w.FlushIfFull()
	}
}

// outbox reads the forwarding state: the messages of the batch are all that are Forwarding.
func (r *imageReader) outbox(q *Machine, sub *subqueue) {
	serial, forwarding := r.Uvarint(), sub.ix.Count(fsm.Forwarding)
	if r.stream != nil {
		forwarding = uint64(len(r.stream.forwarding))
		defer func() { r.stream.forwarding = r.stream.forwarding[:0] }()
	}
	if serial == 0 {
		r.Require(forwarding == 0)
		return
	}
	o := &outbox{serial: serial, epoch: r.Uvarint()}
	before := fsm.SequenceNumber(0)
	n := r.UvarintMax(fsm.CommandMessagesMax)
	if n > 0 {
		o.to = fsm.Destination{Partition: fsm.PartitionID(r.Uint32()), Entity: fsm.EntityID(r.Uvarint())}
		o.name = r.Text(fsm.EntityNameBytesMax)
		r.Require(o.to.Partition != fsm.CatalogPartition && o.to.Entity != 0)
	}
	for ; n > 0 && !r.Failed(); n-- {
		number := before + fsm.SequenceNumber(r.UvarintMax(math.MaxInt64))
		r.Require(before < number && r.isForwarding(sub, number))
		o.numbers = append(o.numbers, number)
		before = number
	}
	r.Require(sub.address.CanForward() && forwarding == uint64(len(o.numbers)))
	sub.out, sub.resumed = o, o.hasBatch()
	if sub.resumed {
		q.notifyReady(sub)
	}
}

func (r *imageReader) isForwarding(sub *subqueue, n fsm.SequenceNumber) bool {
	if r.stream != nil {
		_, found := slices.BinarySearch(r.stream.forwarding, n)
		return found
	}
	at, found := sub.ix.Seek(n)
	if !found {
		return false
	}
	rec := sub.ix.Get(at)
	return rec.State() == fsm.Forwarding
}

// sourceBatches writes the last batch of every source.
func (w *imageWriter) sourceBatches(list []sourceBatch) {
	w.Count(len(list))
	for i := range list {
		a := &list[i]
		w.Uvarint(uint64(a.from.Partition))
		w.Address(a.from.Address)
		w.Uvarint(a.epoch)
		w.Count(len(a.former))
		for _, epoch := range a.former {
			w.Uvarint(epoch)
		}
		w.Fixed64(a.numbers)
		w.Uvarint(a.serial)
		w.Instant(a.at)
		w.Uvarint(uint64(a.count))
		w.Byte(byte(a.refused))
		w.Bool(a.codes != nil)
		for _, c := range a.codes {
			w.Byte(byte(c))
		}
		w.FlushIfFull()
	}
}

func (r *imageReader) sourceBatches(a *sourceBatches) {
	r.Repeat(transferSourcesMax, func() {
		x := sourceBatch{from: fsm.Outbox{Partition: fsm.PartitionID(r.Uint32()), Address: r.Address()}, epoch: r.Uvarint()}
		r.Repeat(formerEpochsMax, func() {
			former := r.Uvarint()
			r.Require(former != x.epoch && !slices.Contains(x.former, former))
			x.former = append(x.former, former)
		})
		x.numbers, x.serial, x.at = r.Fixed64(), r.Uvarint(), r.Instant()
		x.count, x.refused = uint16(r.UvarintMax(fsm.CommandMessagesMax)), fsm.Code(r.Byte())
		n := len(a.list)
		r.Require(x.from.Partition != fsm.CatalogPartition && x.from.Address.Entity != 0 && x.from.Address.CanForward())
		r.Require(x.numbers != 0 && x.serial != 0 && x.count != 0 && (n == 0 || a.list[n-1].from.Compare(x.from) < 0))
		if r.Bool() {
			r.Require(x.refused == fsm.OK)
			for range x.count {
				x.codes = append(x.codes, fsm.Code(r.Byte()))
			}
		}
		a.list = append(a.list, x)
	})
}
