package shards

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/peeklock/peeklock/fsm"
)

// Count returns the number of shards of an entity, 1 for an entity that is not partitioned.
func Count(at fsm.EntityRef) int { return max(1, len(at.Shards)) }

// Ref returns a reference to one shard of a partitioned entity; a shard is an entity like any other. An entity that is not
// partitioned is its own shard 0.
func Ref(at fsm.EntityRef, shard int) fsm.EntityRef {
	if len(at.Shards) == 0 {
		return at
	}
	at.ID, at.Partition = at.Shards[shard].Entity, at.Shards[shard].Partition
	if at.Topic != 0 {
		at.Topic += fsm.EntityID(shard) // the shard of the topic in the same partition
	}
	at.Shards = nil
	return at
}

// Bits returns the bits that are added to the sequence numbers of a shard for clients.
func Bits(shard int) fsm.SequenceNumber { return fsm.SequenceNumber(shard) << fsm.ShardShift }

// Split splits a client's sequence number into the shard and the number within it.
func Split(n fsm.SequenceNumber) (shard int, inside fsm.SequenceNumber) {
	return n.Shard(), n & (1<<fsm.ShardShift - 1)
}

// ToClient replaces the sequence numbers of deliveries of a shard with those that clients see.
func ToClient(bits fsm.SequenceNumber, deliveries []fsm.Delivery) []fsm.Delivery {
	if bits == 0 {
		return deliveries
	}
	for i := range deliveries {
		d := &deliveries[i]
		d.Lock.Sequence |= bits
		if d.Topic != 0 {
			d.Topic |= bits
		}
	}
	return deliveries
}

// Hash returns the shard of a key: 64-bit FNV-1a, modulo. It must never change, or the
// messages of a session would be in two shards.
func Hash(e *fsm.Entity, key string) int {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	for i := range len(key) {
		hash = (hash ^ uint64(key[i])) * prime
	}
	return int(hash % uint64(len(e.Shards)))
}

// Part is what of a request belongs to one shard of an entity.
type Part[T any] struct {
	At        fsm.EntityRef // the shard
	Shard     int           // its number
	Items     []T           // with the sequence numbers within the shard
	Positions []int         // of the items in the request
}

// Parts divides the items of a request by the shards in their sequence numbers. number returns the place of the number in an
// item. Items of shards that do not exist are left out.
func Parts[T any](at fsm.EntityRef, items []T, number func(*T) *fsm.SequenceNumber) (parts []Part[T]) {
	for i, item := range items {
		n := number(&item)
		shard, inside := Split(*n)
		if shard >= Count(at) {
			continue
		}
		*n = inside
		place := slices.IndexFunc(parts, func(p Part[T]) bool { return p.Shard == shard })
		if place < 0 {
			place = len(parts)
			parts = append(parts, Part[T]{At: Ref(at, shard), Shard: shard})
		}
		parts[place].Items = append(parts[place].Items, item)
		parts[place].Positions = append(parts[place].Positions, i)
	}
	return parts
}

// NumberOf is the number of a sequence number, for Parts.
func NumberOf(n *fsm.SequenceNumber) *fsm.SequenceNumber { return n }

// NumberOfLock is the sequence number of a lock, for Parts.
func NumberOfLock(l *fsm.LockID) *fsm.SequenceNumber { return &l.Sequence }

// NumberOfSettlement is the sequence number of a settlement, for Parts.
func NumberOfSettlement(s *fsm.Settlement) *fsm.SequenceNumber { return &s.Lock.Sequence }

// Each calls a function for every shard of an entity concurrently. Errors are joined.
func Each(ctx context.Context, at fsm.EntityRef, do func(ctx context.Context, part fsm.EntityRef, shard int) error) error {
	if Count(at) == 1 {
		return do(ctx, Ref(at, 0), 0)
	}
	errs := make([]error, Count(at))
	var doing sync.WaitGroup
	for shard := range errs {
		doing.Go(func() { errs[shard] = do(ctx, Ref(at, shard), shard) })
	}
	doing.Wait()
	return errors.Join(errs...)
}
