package shards

import "github.com/peeklock/peeklock/fsm"

// Ref returns a reference to one shard of a partitioned entity; a shard is an entity like any other.
func Ref(at fsm.EntityRef, shard int) fsm.EntityRef {
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
