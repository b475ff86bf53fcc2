package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/peeklock/peeklock/fsm"
)

// shardShift is the lowest bit of the shard in a sequence number, as in the cloud: 48 bits are left
// for the number within the shard.
const shardShift = 48

// shardRef refers to one shard of a partitioned entity, which is an entity like any other.
func shardRef(at fsm.EntityRef, shard int) fsm.EntityRef {
	at.ID, at.Partition = at.Shards[shard].Entity, at.Shards[shard].Partition
	if at.Topic != 0 {
		at.Topic += fsm.EntityID(shard) // the shard of the topic in the same partition
	}
	at.Shards = nil
	return at
}

// shardBits are added to the sequence numbers of a shard for clients.
func shardBits(shard int) fsm.SequenceNumber { return fsm.SequenceNumber(shard) << shardShift }

// splitSequence splits a client's sequence number into the shard and the number within it.
func splitSequence(n fsm.SequenceNumber) (shard int, inside fsm.SequenceNumber) {
	return int(n >> shardShift), n & (1<<shardShift - 1)
}

// toClientSequences gives deliveries of a shard the sequence numbers that clients see.
func toClientSequences(bits fsm.SequenceNumber, deliveries []fsm.Delivery) []fsm.Delivery {
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

// shardKey returns what binds a message to a shard: its session, else its partition key, else
// its id if the entity detects duplicates. False means that any shard will do.
func shardKey(e *fsm.Entity, m *fsm.Message) (key string, bound bool) {
	switch {
	case m.HasSession:
		return m.Session, true
	case m.PartitionKey != "":
		return m.PartitionKey, true
	case e.Settings.RequiresDuplicateDetection && m.ID != "":
		return m.ID, true
	}
	return "", false
}

// hashShard returns the shard of a key: 64-bit FNV-1a, modulo. It must never change, or the
// messages of a session would be in two shards.
func hashShard(e *fsm.Entity, key string) int {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	for i := range len(key) {
		hash = (hash ^ uint64(key[i])) * prime
	}
	return int(hash % uint64(len(e.Shards)))
}

// chooseShard chooses the shard of a batch, which is stored as a whole: InvalidArgument when its
// messages have different keys. Without a key the shards take turns, except those that are known
// to have no leader.
func (r *Router) chooseShard(e *fsm.Entity, messages []fsm.Message) (int, fsm.Code) {
	if len(messages) == 0 {
		return 0, fsm.InvalidArgument
	}
	key, bound := shardKey(e, &messages[0])
	for i := range messages[1:] {
		if other, too := shardKey(e, &messages[i+1]); other != key || too != bound {
			return 0, fsm.InvalidArgument
		}
	}
	if bound {
		return hashShard(e, key), fsm.OK
	}
	n := uint64(len(e.Shards))
	next := r.shardTurns.Add(1)
	for i := range n {
		shard := int((next + i) % n)
		if !r.client(e.Shards[shard].Partition).hasNoLeader() {
			return shard, fsm.OK
		}
	}
	return int(next % n), fsm.OK
}

// hasNoLeader reports whether requests wait because no leader is known.
func (p *partitionClient) hasNoLeader() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader == "" && p.low < p.next
}

// sendShard is sendMessages for a partitioned entity.
func (r *Router) sendShard(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Result)) {
	shard, code := r.chooseShard(&at.Entity, messages)
	if code != fsm.OK {
		done(fsm.Result{Code: code})
		return
	}
	bits := shardBits(shard)
	r.sendMessages(shardRef(at, shard), messages, func(result fsm.Result) {
		if result.Sequence != 0 {
			result.Sequence |= bits
		}
		for i, n := range result.Sequences {
			if n != 0 {
				result.Sequences[i] = n | bits
			}
		}
		done(result)
	})
}

// positionsByShard groups the positions of n client sequence numbers by their shards, in order. It leaves
// out numbers of shards that do not exist.
func positionsByShard(at fsm.EntityRef, n int, number func(int) fsm.SequenceNumber) map[int][]int {
	groups := make(map[int][]int)
	for i := range n {
		if shard, _ := splitSequence(number(i)); shard < len(at.Shards) {
			groups[shard] = append(groups[shard], i)
		}
	}
	return groups
}

// settleShards is Settle for a partitioned entity: done is called when all shards have answered.
func (r *Router) settleShards(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	codes := lockLostCodes(len(settlements))
	groups := positionsByShard(at, len(settlements), func(i int) fsm.SequenceNumber { return settlements[i].Lock.Sequence })
	remaining := newCountdown(len(groups), func() { done(codes) })
	for shard, positions := range groups {
		r.Settle(shardRef(at, shard), toShardSettlements(settlements, positions), func(got []fsm.Code) {
			for i, position := range positions {
				codes[position] = got[i]
			}
			remaining.partDone()
		})
	}
}

// toShardSettlements returns the settlements at some positions, with the numbers within their shard.
func toShardSettlements(settlements []fsm.Settlement, positions []int) []fsm.Settlement {
	some := make([]fsm.Settlement, len(positions))
	for i, position := range positions {
		some[i] = settlements[position]
		_, some[i].Lock.Sequence = splitSequence(some[i].Lock.Sequence)
	}
	return some
}

// renewShards is Renew for a partitioned entity.
func (r *Router) renewShards(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	codes, untils := lockLostCodes(len(locks)), make([]fsm.Instant, len(locks))
	groups := positionsByShard(at, len(locks), func(i int) fsm.SequenceNumber { return locks[i].Sequence })
	remaining := newCountdown(len(groups), func() { done(codes, untils) })
	for shard, positions := range groups {
		some := make([]fsm.LockID, len(positions))
		for i, position := range positions {
			some[i] = locks[position]
			_, some[i].Sequence = splitSequence(some[i].Sequence)
		}
		r.Renew(shardRef(at, shard), some, func(got []fsm.Code, until []fsm.Instant) {
			for i, position := range positions {
				codes[position], untils[position] = got[i], until[i]
			}
			remaining.partDone()
		})
	}
}

// lockLostCodes returns n times MessageLockLost, the code of locks whose shard does not exist.
func lockLostCodes(n int) []fsm.Code { return fillCodes(make([]fsm.Code, n), fsm.MessageLockLost) }

// fetchShards is Fetch for a partitioned entity. It returns what some shards have locked even when
// others do not answer.
func (r *Router) fetchShards(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	groups := positionsByShard(at, len(sequences), func(i int) fsm.SequenceNumber { return sequences[i] })
	var mu sync.Mutex
	var found []fsm.Delivery
	worst := fsm.OK
	remaining := newCountdown(len(groups), func() {
		if len(found) > 0 {
			worst = fsm.OK
		}
		done(worst, found)
	})
	for shard, positions := range groups {
		some := toShardSequences(sequences, positions)
		r.Fetch(shardRef(at, shard), some, receiveAndDelete, func(code fsm.Code, got []fsm.Delivery) {
			mu.Lock()
			found = append(found, toClientSequences(shardBits(shard), got)...)
			if code != fsm.OK {
				worst = code
			}
			mu.Unlock()
			remaining.partDone()
		})
	}
}

// toShardSequences returns the client sequence numbers at some positions as numbers within their shard.
func toShardSequences(sequences []fsm.SequenceNumber, positions []int) []fsm.SequenceNumber {
	some := make([]fsm.SequenceNumber, len(positions))
	for i, position := range positions {
		_, some[i] = splitSequence(sequences[position])
	}
	return some
}

// cancelShards is CancelScheduled for a partitioned entity: all or none within each shard, and an
// error when one of them refuses, although others may have done their part.
func (r *Router) cancelShards(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	groups := positionsByShard(at, len(sequences), func(i int) fsm.SequenceNumber { return sequences[i] })
	known := 0
	for _, positions := range groups {
		known += len(positions)
	}
	if known < len(sequences) || known == 0 {
		done(fsm.MessageNotFound)
		return
	}
	var worst atomic.Uint32
	remaining := newCountdown(len(groups), func() { done(fsm.Code(worst.Load())) })
	for shard, positions := range groups {
		r.CancelScheduled(shardRef(at, shard), toShardSequences(sequences, positions), func(code fsm.Code) {
			if code != fsm.OK {
				worst.Store(uint32(code))
			}
			remaining.partDone()
		})
	}
}

// purgeShards is Purge for a partitioned entity, one shard after the other. It skips a shard that
// does not answer; the code of that one is returned when nothing was removed.
func (r *Router) purgeShards(at fsm.EntityRef, before fsm.Instant, max, shard, removed int, worst fsm.Code, done func(fsm.Code, int)) {
	if shard == len(at.Shards) || max <= 0 {
		if removed > 0 {
			worst = fsm.OK
		}
		done(worst, removed)
		return
	}
	r.Purge(shardRef(at, shard), before, max, func(code fsm.Code, n int) {
		if code != fsm.OK {
			worst = code
		}
		r.purgeShards(at, before, max-n, shard+1, removed+n, worst, done)
	})
}

// countdown calls a function when a number of parts are done; at once when there are none.
type countdown struct {
	left atomic.Int64
	then func()
}

func newCountdown(parts int, then func()) *countdown {
	j := &countdown{then: then}
	j.left.Store(int64(parts))
	if parts == 0 {
		then()
	}
	return j
}

func (j *countdown) partDone() {
	if j.left.Add(-1) == 0 {
		j.then()
	}
}

// onShards calls a function for every shard of an entity concurrently, or for the entity itself when
// it is not partitioned. Errors are joined.
func onShards(ctx context.Context, at fsm.EntityRef, do func(ctx context.Context, at fsm.EntityRef, shard int) error) error {
	if len(at.Shards) == 0 {
		return do(ctx, at, 0)
	}
	errs := make([]error, len(at.Shards))
	var doing sync.WaitGroup
	for shard := range at.Shards {
		doing.Go(func() { errs[shard] = do(ctx, shardRef(at, shard), shard) })
	}
	doing.Wait()
	return errors.Join(errs...)
}
