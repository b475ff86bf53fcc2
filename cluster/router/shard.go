package router

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// chooseShard chooses the shard of a batch, which is stored as a whole: InvalidArgument when its
// messages have different keys. Without a key the shards take turns, except those that are known
// to have no leader.
func (r *Router) chooseShard(e *fsm.Entity, messages []fsm.Message) (int, fsm.Code) {
	if len(messages) == 0 {
		return 0, fsm.InvalidArgument
	}
	key, bound := e.ShardKey(&messages[0])
	for i := range messages[1:] {
		if other, too := e.ShardKey(&messages[i+1]); other != key || too != bound {
			return 0, fsm.InvalidArgument
		}
	}
	if bound {
		return shards.Hash(e, key), fsm.OK
	}
	n := uint64(len(e.Shards))
	next := r.shardTurns.Add(1)
	for i := range n {
		shard := int((next + i) % n)
		if !r.HasNoLeader(e.Shards[shard].Partition) {
			return shard, fsm.OK
		}
	}
	return int(next % n), fsm.OK
}

// sendShard is sendMessages for a partitioned entity.
func (r *Router) sendShard(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Result)) {
	shard, code := r.chooseShard(&at.Entity, messages)
	if code != fsm.OK {
		done(fsm.Result{Code: code})
		return
	}
	bits := shards.Bits(shard)
	r.sendMessages(shards.Ref(at, shard), messages, func(result fsm.Result) {
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

// settleShards is Settle for a partitioned entity: done is called when all shards have answered.
func (r *Router) settleShards(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	codes := lockLostCodes(len(settlements))
	groups := shards.Positions(at, len(settlements), func(i int) fsm.SequenceNumber { return settlements[i].Lock.Sequence })
	remaining := newCountdown(len(groups), func() { done(codes) })
	for shard, positions := range groups {
		r.Settle(shards.Ref(at, shard), toShardSettlements(settlements, positions), func(got []fsm.Code) {
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
		_, some[i].Lock.Sequence = shards.Split(some[i].Lock.Sequence)
	}
	return some
}

// renewShards is Renew for a partitioned entity.
func (r *Router) renewShards(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	codes, untils := lockLostCodes(len(locks)), make([]fsm.Instant, len(locks))
	groups := shards.Positions(at, len(locks), func(i int) fsm.SequenceNumber { return locks[i].Sequence })
	remaining := newCountdown(len(groups), func() { done(codes, untils) })
	for shard, positions := range groups {
		some := make([]fsm.LockID, len(positions))
		for i, position := range positions {
			some[i] = locks[position]
			_, some[i].Sequence = shards.Split(some[i].Sequence)
		}
		r.Renew(shards.Ref(at, shard), some, func(got []fsm.Code, until []fsm.Instant) {
			for i, position := range positions {
				codes[position], untils[position] = got[i], until[i]
			}
			remaining.partDone()
		})
	}
}

// lockLostCodes returns n times MessageLockLost, the code of locks whose shard does not exist.
func lockLostCodes(n int) []fsm.Code { return slices.Repeat([]fsm.Code{fsm.MessageLockLost}, n) }

// fetchShards is Fetch for a partitioned entity.
func (r *Router) fetchShards(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	groups := shards.Positions(at, len(sequences), func(i int) fsm.SequenceNumber { return sequences[i] })
	fetchEach(groups, done, func(shard int, positions []int, done func(fsm.Code, []fsm.Delivery)) {
		r.Fetch(shards.Ref(at, shard), shards.Inside(sequences, positions), receiveAndDelete, done)
	})
}

// fetchReadyShards is FetchReady for a partitioned entity.
func (r *Router) fetchReadyShards(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	groups := shards.Positions(at, len(seen), func(i int) fsm.SequenceNumber { return seen[i].Sequence })
	fetchEach(groups, done, func(shard int, positions []int, done func(fsm.Code, []fsm.Delivery)) {
		some := make([]fsm.LockID, len(positions))
		for i, position := range positions {
			some[i] = seen[position]
			_, some[i].Sequence = shards.Split(some[i].Sequence)
		}
		r.FetchReady(shards.Ref(at, shard), some, receiveAndDelete, done)
	})
}

// fetchEach fetches messages from several shards, and returns those that some shards have locked even when others do not
// answer.
func fetchEach(groups map[int][]int, done func(fsm.Code, []fsm.Delivery), fetch func(shard int, positions []int, done func(fsm.Code, []fsm.Delivery))) {
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
		fetch(shard, positions, func(code fsm.Code, got []fsm.Delivery) {
			mu.Lock()
			found = append(found, shards.ToClient(shards.Bits(shard), got)...)
			if code != fsm.OK {
				worst = code
			}
			mu.Unlock()
			remaining.partDone()
		})
	}
}

// cancelShards is CancelScheduled for a partitioned entity: all or none within each shard, and an
// error when one of them refuses, although others may have cancelled their messages.
func (r *Router) cancelShards(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	groups := shards.Positions(at, len(sequences), func(i int) fsm.SequenceNumber { return sequences[i] })
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
		r.CancelScheduled(shards.Ref(at, shard), shards.Inside(sequences, positions), func(code fsm.Code) {
			if code != fsm.OK {
				worst.Store(uint32(code))
			}
			remaining.partDone()
		})
	}
}

// countdown calls a function when a number of parts are done, or immediately when there are none.
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
