package router

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// sharded performs operations on partitioned entities, in their shards. It implements operations.
type sharded struct {
	single *single
	turns  atomic.Uint64 // selects the next shard
}

// fanOut sends each part of a request with ask, and calls then when all parts have been answered.
func fanOut[T any](parts []shards.Part[T], then func(), ask func(part *shards.Part[T], answered func())) {
	if len(parts) == 0 {
		then()
		return
	}
	var left atomic.Int64
	left.Store(int64(len(parts)))
	for i := range parts {
		ask(&parts[i], func() {
			if left.Add(-1) == 0 {
				then()
			}
		})
	}
}

// place puts the answers of a part where its items were in the request.
func place[T any](all, some []T, positions []int) {
	for i, position := range positions {
		all[position] = some[i]
	}
}

// choose chooses the shard of a batch, which is stored as a whole: InvalidArgument when its
// messages have different keys. Without a key the shards take turns, except those that are known
// to have no leades.
func (s *sharded) choose(e *fsm.Entity, messages []fsm.Message) (int, fsm.Code) {
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
	next := s.turns.Add(1)
	for i := range n {
		shard := int((next + i) % n)
		if !s.single.HasNoLeader(e.Shards[shard].Partition) {
			return shard, fsm.OK
		}
	}
	return int(next % n), fsm.OK
}

func (s *sharded) send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Result)) {
	shard, code := s.choose(&at.Entity, messages)
	if code != fsm.OK {
		done(fsm.Result{Code: code})
		return
	}
	bits := shards.Bits(shard)
	s.single.send(shards.Ref(at, shard), messages, func(result fsm.Result) {
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

// settle calls done when all shards have answered.
func (s *sharded) settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	codes := lockLostCodes(len(settlements))
	parts := shards.Parts(at, settlements, shards.NumberOfSettlement)
	fanOut(parts, func() { done(codes) }, func(part *shards.Part[fsm.Settlement], answered func()) {
		s.single.settle(part.At, part.Items, func(some []fsm.Code) {
			place(codes, some, part.Positions)
			answered()
		})
	})
}

func (s *sharded) renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	codes, untils := lockLostCodes(len(locks)), make([]fsm.Instant, len(locks))
	parts := shards.Parts(at, locks, shards.NumberOfLock)
	fanOut(parts, func() { done(codes, untils) }, func(part *shards.Part[fsm.LockID], answered func()) {
		s.single.renew(part.At, part.Items, func(some []fsm.Code, until []fsm.Instant) {
			place(codes, some, part.Positions)
			place(untils, until, part.Positions)
			answered()
		})
	})
}

func (s *sharded) check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	codes := lockLostCodes(len(locks))
	parts := shards.Parts(at, locks, shards.NumberOfLock)
	fanOut(parts, func() { done(codes) }, func(part *shards.Part[fsm.LockID], answered func()) {
		s.single.check(part.At, part.Items, func(some []fsm.Code) {
			place(codes, some, part.Positions)
			answered()
		})
	})
}

// lockLostCodes returns n times MessageLockLost, the code of locks whose shard does not exist.
func lockLostCodes(n int) []fsm.Code { return slices.Repeat([]fsm.Code{fsm.MessageLockLost}, n) }

func (s *sharded) fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	fetchParts(shards.Parts(at, sequences, shards.NumberOf), done, func(part *shards.Part[fsm.SequenceNumber], done func(fsm.Code, []fsm.Delivery)) {
		s.single.fetch(part.At, part.Items, receiveAndDelete, done)
	})
}

func (s *sharded) fetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	fetchParts(shards.Parts(at, seen, shards.NumberOfLock), done, func(part *shards.Part[fsm.LockID], done func(fsm.Code, []fsm.Delivery)) {
		s.single.fetchReady(part.At, part.Items, receiveAndDelete, done)
	})
}

// fetchParts fetches messages from several shards, and returns those that some shards have locked even when others do not
// answer.
func fetchParts[T any](parts []shards.Part[T], done func(fsm.Code, []fsm.Delivery), fetch func(part *shards.Part[T], done func(fsm.Code, []fsm.Delivery))) {
	var mu sync.Mutex
	var found []fsm.Delivery
	worst := fsm.OK
	fanOut(parts, func() {
		if len(found) > 0 {
			worst = fsm.OK
		}
		done(worst, found)
	}, func(part *shards.Part[T], answered func()) {
		fetch(part, func(code fsm.Code, got []fsm.Delivery) {
			mu.Lock()
			found = append(found, shards.ToClient(shards.Bits(part.Shard), got)...)
			if code != fsm.OK {
				worst = code
			}
			mu.Unlock()
			answered()
		})
	})
}

// cancelScheduled cancels all or none within each shard: an error when one of them refuses, although others may have
// cancelled their messages.
func (s *sharded) cancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	parts := shards.Parts(at, sequences, shards.NumberOf)
	known := 0
	for i := range parts {
		known += len(parts[i].Items)
	}
	if known < len(sequences) || known == 0 {
		done(fsm.MessageNotFound)
		return
	}
	var worst atomic.Uint32
	fanOut(parts, func() { done(fsm.Code(worst.Load())) }, func(part *shards.Part[fsm.SequenceNumber], answered func()) {
		s.single.cancelScheduled(part.At, part.Items, func(code fsm.Code) {
			if code != fsm.OK {
				worst.Store(uint32(code))
			}
			answered()
		})
	})
}
