package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// FenceIdle is a step of the deletion of a partitioned entity that is idle. A shard does not see whether the
// others are in use, so none deletes itself. Instead all of them are fenced, each if it is idle: a fenced shard accepts nothing.
// Then the first shard, whose fence decides, is deleted, and its tombstone has the others dropped.
//
// Refused with EntityNotFound; NotAllowed for an entity that is not a shard; or PreconditionFails where a step says
// so.
type FenceIdle struct {
	Entity EntityID // a shard
	// Round names the attempt to delete the entity: the Serial of the result for the first shard, where it is 0.
	// A command of an attempt that has ended has no effect.
	Round uint64
	Step  FenceStep
}

// FenceStep is a step of FenceIdle. The numbers are part of the log format.
type FenceStep uint8

// The steps.
const (
	// FenceSet fences a shard. Result: Serial is the round. PreconditionFails if it is not idle, or fenced in a later
	// round, the first shard in any.
	FenceSet FenceStep = 1
	// FenceLift removes the fence of a round. It is OK if there is none. At the first shard it ends the round for good, and
	// only after that are the other shards allowed to accept anything.
	FenceLift FenceStep = 2
	// FenceDelete deletes the first shard, if it is still idle and fenced in this round: PreconditionFails otherwise.
	FenceDelete FenceStep = 3
)

// FencedShard is a shard with a fence.
type FencedShard struct {
	Entity EntityID
	Round  uint64
}

func (FenceIdle) kind() Kind { return KindFenceIdle }

func (c FenceIdle) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c FenceIdle) Check() Code {
	return CodeIf(c.Entity != 0 && c.Step >= FenceSet && c.Step <= FenceDelete && (c.Round != 0 || c.Step == FenceSet))
}

func (c *FenceIdle) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	fields.Uint64(x, &c.Round)
	fields.Uint8(x, &c.Step)
}

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

func (BeginEpoch) kind() Kind { return KindBeginEpoch }

func (c BeginEpoch) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c BeginEpoch) Check() Code {
	if c.Serial == 0 {
		return CodeIf(c.Epoch != 0 && c.Address == Address{} && c.Replaces == 0)
	}
	return CodeIf(c.Epoch != 0 && c.Epoch != c.Replaces && c.Address.Entity != 0 && c.Address.CanForward())
}

func (c *BeginEpoch) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Epoch)
	c.Address.fields(x)
	fields.Uint64(x, &c.Serial)
	fields.Uint64(x, &c.Replaces)
}
