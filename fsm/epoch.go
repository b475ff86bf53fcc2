package fsm

import (
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/planted"
)

// BeginEpoch begins a new epoch of forwarding in a partition: batches that are taken from now on
// cannot be mistaken for batches that the partition sent before. It is needed when the state of the
// partition is older than what other partitions have received from it: its next batches would repeat
// serials and sequence numbers that others remember. It needs no header.
//
// A restore writes it without Serial: batches in flight keep their epoch, because the copy contains
// what they consist of. A batch in flight that its destination has refused as Stale is named by
// Address, Serial and Replaces; it gets the new epoch too and is accepted again. The command does
// nothing if that batch is no longer in flight.
type BeginEpoch struct {
	Epoch    uint64 // random, because it must never have been used before; not 0
	Address  Address
	Serial   uint64
	Replaces uint64 // the epoch in which the batch was refused
}

func (BeginEpoch) kind() Kind                           { return KindBeginEpoch }
func (c BeginEpoch) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }
func (c BeginEpoch) check() Code {
	if c.Serial == 0 {
		return codeIf(c.Epoch != 0 && c.Address == Address{} && c.Replaces == 0)
	}
	return codeIf(c.Epoch != 0 && c.Epoch != c.Replaces && c.Address.Entity != 0 && c.Address.canForward())
}

func (c *BeginEpoch) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Epoch)
	c.Address.fields(x)
	fields.Uint64(x, &c.Serial)
	fields.Uint64(x, &c.Replaces)
}

// beginEpoch begins an epoch. A batch in flight that gets the new epoch was received before under a
// serial of the source's former life, or was not: it can arrive twice and is never lost.
func (q *Queues) beginEpoch(c *BeginEpoch) Code {
	if code := c.check(); code != OK {
		return code
	}
	if c.Serial == 0 {
		if !planted.Active(planted.RestoreKeepsEpoch) {
			q.epoch = c.Epoch
		}
		return OK
	}
	sub := q.forwardSource(c.Address)
	if sub == nil || !sub.out.hasBatch() || sub.out.serial != c.Serial || sub.out.epoch != c.Replaces {
		return OK
	}
	out := *sub.out
	out.epoch = c.Epoch
	sub.out, q.epoch = &out, c.Epoch
	return OK
}
