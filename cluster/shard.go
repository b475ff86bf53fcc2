package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/peeklock/peeklock/fsm"
)

// shardShift is where the number of the shard begins in a sequence number, as in the cloud:
// 48 bits are left for the number that the shard gave.
const shardShift = 48

// shardPlace is a place within one shard of a partitioned entity: an entity like any other.
func shardPlace(at fsm.Place, shard int) fsm.Place {
	at.ID, at.Partition = at.Shards[shard].Entity, at.Shards[shard].Partition
	if at.Topic != 0 {
		at.Topic += fsm.EntityID(shard) // the shard of the topic that is beside it
	}
	at.Shards = nil
	return at
}

// shardBits are what the numbers of a shard get outside.
func shardBits(shard int) fsm.SequenceNumber { return fsm.SequenceNumber(shard) << shardShift }

// splitNumber takes a number from outside apart.
func splitNumber(n fsm.SequenceNumber) (shard int, inside fsm.SequenceNumber) {
	return int(n >> shardShift), n & (1<<shardShift - 1)
}

// outside gives deliveries of a shard the numbers that they have outside.
func outside(bits fsm.SequenceNumber, deliveries []fsm.Delivery) []fsm.Delivery {
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

// shardKey is what binds a message to a shard: its session, else its partition key, else
// its id where duplicates are detected. False: any shard will do.
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

// hashShard is the shard of a key: FNV-1a of 64 bits, modulo. It must never change, or the
// messages of a session would be in two shards.
func hashShard(e *fsm.Entity, key string) int {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	for i := range len(key) {
		hash = (hash ^ uint64(key[i])) * prime
	}
	return int(hash % uint64(len(e.Shards)))
}

// shardOf chooses the shard of a batch, which stays together because it is stored as a
// whole: InvalidArgument when its messages have different keys. Where no key binds them
// the shards take turns, but for those that are known to have no leader.
func (r *Router) shardOf(e *fsm.Entity, messages []fsm.Message) (int, fsm.Code) {
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
	turn := r.turns.Add(1)
	for i := range n {
		shard := int((turn + i) % n)
		if !r.line(e.Shards[shard].Partition).stuck() {
			return shard, fsm.OK
		}
	}
	return int(turn % n), fsm.OK
}

// stuck says whether requests wait because nobody is known to lead.
func (l *line) stuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader == "" && l.low < l.next
}

// sendShard is sendMessages to a partitioned entity.
func (r *Router) sendShard(at fsm.Place, messages []fsm.Message, done func(fsm.Result)) {
	shard, code := r.shardOf(&at.Entity, messages)
	if code != fsm.OK {
		done(fsm.Result{Code: code})
		return
	}
	bits := shardBits(shard)
	r.sendMessages(shardPlace(at, shard), messages, func(result fsm.Result) {
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

// byShard sorts n numbers from outside by their shards: positions, in order. Numbers of a
// shard that is not there are left out.
func byShard(at fsm.Place, n int, number func(int) fsm.SequenceNumber) map[int][]int {
	groups := make(map[int][]int)
	for i := range n {
		if shard, _ := splitNumber(number(i)); shard < len(at.Shards) {
			groups[shard] = append(groups[shard], i)
		}
	}
	return groups
}

// settleShards is Settle at a partitioned entity: each shard for itself, and done when all
// have answered.
func (r *Router) settleShards(at fsm.Place, settlements []fsm.Settlement, done func([]fsm.Code)) {
	codes := lost(len(settlements))
	groups := byShard(at, len(settlements), func(i int) fsm.SequenceNumber { return settlements[i].Lock.Sequence })
	join := newJoin(len(groups), func() { done(codes) })
	for shard, places := range groups {
		r.Settle(shardPlace(at, shard), insideSettlements(settlements, places), func(got []fsm.Code) {
			for i, place := range places {
				codes[place] = got[i]
			}
			join.ended()
		})
	}
}

// insideSettlements is some of the settlements, with the numbers that their shard knows.
func insideSettlements(settlements []fsm.Settlement, places []int) []fsm.Settlement {
	some := make([]fsm.Settlement, len(places))
	for i, place := range places {
		some[i] = settlements[place]
		_, some[i].Lock.Sequence = splitNumber(some[i].Lock.Sequence)
	}
	return some
}

// renewShards is Renew at a partitioned entity.
func (r *Router) renewShards(at fsm.Place, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	codes, untils := lost(len(locks)), make([]fsm.Instant, len(locks))
	groups := byShard(at, len(locks), func(i int) fsm.SequenceNumber { return locks[i].Sequence })
	join := newJoin(len(groups), func() { done(codes, untils) })
	for shard, places := range groups {
		some := make([]fsm.LockID, len(places))
		for i, place := range places {
			some[i] = locks[place]
			_, some[i].Sequence = splitNumber(some[i].Sequence)
		}
		r.Renew(shardPlace(at, shard), some, func(got []fsm.Code, until []fsm.Instant) {
			for i, place := range places {
				codes[place], untils[place] = got[i], until[i]
			}
			join.ended()
		})
	}
}

// lost is n times MessageLockLost: what is said of locks that no shard is asked about.
func lost(n int) []fsm.Code { return fill(make([]fsm.Code, n), fsm.MessageLockLost) }

// fetchShards is Fetch at a partitioned entity. What some shards have locked is given even
// when others cannot be asked.
func (r *Router) fetchShards(at fsm.Place, sequences []fsm.SequenceNumber, takes bool, done func(fsm.Code, []fsm.Delivery)) {
	groups := byShard(at, len(sequences), func(i int) fsm.SequenceNumber { return sequences[i] })
	var mu sync.Mutex
	var found []fsm.Delivery
	worst := fsm.OK
	join := newJoin(len(groups), func() {
		if len(found) > 0 {
			worst = fsm.OK
		}
		done(worst, found)
	})
	for shard, places := range groups {
		some := insideNumbers(sequences, places)
		r.Fetch(shardPlace(at, shard), some, takes, func(code fsm.Code, got []fsm.Delivery) {
			mu.Lock()
			found = append(found, outside(shardBits(shard), got)...)
			if code != fsm.OK {
				worst = code
			}
			mu.Unlock()
			join.ended()
		})
	}
}

// insideNumbers is some of the numbers from outside, as their shard knows them.
func insideNumbers(sequences []fsm.SequenceNumber, places []int) []fsm.SequenceNumber {
	some := make([]fsm.SequenceNumber, len(places))
	for i, place := range places {
		_, some[i] = splitNumber(sequences[place])
	}
	return some
}

// cancelShards is CancelScheduled at a partitioned entity: all or none within each shard,
// and an error when one of them refuses, though others may have done it.
func (r *Router) cancelShards(at fsm.Place, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	groups := byShard(at, len(sequences), func(i int) fsm.SequenceNumber { return sequences[i] })
	known := 0
	for _, places := range groups {
		known += len(places)
	}
	if known < len(sequences) || known == 0 {
		done(fsm.MessageNotFound)
		return
	}
	var worst atomic.Uint32
	join := newJoin(len(groups), func() { done(fsm.Code(worst.Load())) })
	for shard, places := range groups {
		r.CancelScheduled(shardPlace(at, shard), insideNumbers(sequences, places), func(code fsm.Code) {
			if code != fsm.OK {
				worst.Store(uint32(code))
			}
			join.ended()
		})
	}
}

// purgeShards is Purge at a partitioned entity, one shard after the other. A shard that
// cannot be asked is passed over; its code is given when nothing else went.
func (r *Router) purgeShards(at fsm.Place, before fsm.Instant, most, shard, gone int, worst fsm.Code, done func(fsm.Code, int)) {
	if shard == len(at.Shards) || most <= 0 {
		if gone > 0 {
			worst = fsm.OK
		}
		done(worst, gone)
		return
	}
	r.Purge(shardPlace(at, shard), before, most, func(code fsm.Code, n int) {
		if code != fsm.OK {
			worst = code
		}
		r.purgeShards(at, before, most-n, shard+1, gone+n, worst, done)
	})
}

// join calls then when a number of parts have ended; at once when there are none.
type join struct {
	left atomic.Int64
	then func()
}

func newJoin(parts int, then func()) *join {
	j := &join{then: then}
	j.left.Store(int64(parts))
	if parts == 0 {
		then()
	}
	return j
}

func (j *join) ended() {
	if j.left.Add(-1) == 0 {
		j.then()
	}
}

// onShards does something at every shard of an entity, all at the same time, or at the
// entity itself when it is not partitioned. Errors are joined.
func onShards(ctx context.Context, at fsm.Place, do func(ctx context.Context, at fsm.Place, shard int) error) error {
	if len(at.Shards) == 0 {
		return do(ctx, at, 0)
	}
	errs := make([]error, len(at.Shards))
	var doing sync.WaitGroup
	for shard := range at.Shards {
		doing.Go(func() { errs[shard] = do(ctx, shardPlace(at, shard), shard) })
	}
	doing.Wait()
	return errors.Join(errs...)
}
