package router

import (
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// Receiver gets messages for one receiving link, from one sub-queue. Its methods are safe for concurrent use; none blocks.
type Receiver struct {
	shards locker // of a partitioned entity; then the other fields are not set

	entities  *entities.Manager
	receiver  *client.Receiver
	at        fsm.EntityRef
	shardBits fsm.SequenceNumber // added to the shard's sequence numbers for clients
}

// locker locks messages of all shards of an entity, as a Receiver does.
type locker interface {
	lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery))
	cancel()
	close()
}

// receiver is Router.Receiver.
func (s *single) receiver(at fsm.EntityRef, receiveAndDelete bool) *Receiver {
	return s.receiverOf(at, receiveAndDelete, 0)
}

// receiverOf opens a receiver of a shard, or of an entity that is not partitioned, as shard 0.
func (s *single) receiverOf(at fsm.EntityRef, receiveAndDelete bool, shard int) *Receiver {
	return &Receiver{entities: s.Manager, receiver: s.Receiver(at, receiveAndDelete), at: at, shardBits: shards.Bits(shard)}
}

// Lock locks up to max messages (1 to 4096) with payloads of at most maxBytes (8 MiB) in total, and
// waits up to wait (10 minutes) for the first; a single message may be larger. done is called once
// with the locked messages, or with none when the time expired or Cancel was called. A Code other
// than OK means that the entity can no longer be received from (EntityNotFound) or not now
// (ServerBusy, also for a second Lock while one is outstanding, and under the lock of a session when it stayed
// unknown for Timing.Retry what was locked: the receiver would get what comes behind it).
func (r *Receiver) Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	if r.shards != nil {
		r.shards.lock(max, maxBytes, wait, done)
		return
	}
	r.receiver.Lock(max, maxBytes, time.Now().Add(min(wait, rpc.LockWaitMax)), func(result fsm.Result) {
		if result.Code != fsm.EntityNotFound {
			done(result.Code, shards.ToClient(r.shardBits, result.Deliveries))
			return
		}
		// The catalog may know the queue although its creation was interrupted before the
		// partition knew it.
		r.entities.Recreate(r.at.Entity, func(recreated bool) {
			if !recreated {
				done(fsm.EntityNotFound, nil)
				return
			}
			r.receiver.Lock(max, maxBytes, time.Now(), func(result fsm.Result) {
				done(result.Code, shards.ToClient(r.shardBits, result.Deliveries))
			})
		})
	})
}

// Cancel ends the wait of an outstanding Lock soon. Its done function is still called, and may
// still get messages.
func (r *Receiver) Cancel() {
	if r.shards != nil {
		r.shards.cancel()
		return
	}
	r.receiver.Cancel()
}

// Close cancels an outstanding Lock and frees the receiver id. Locks of messages stay as they are.
func (r *Receiver) Close() {
	if r.shards != nil {
		r.shards.close()
		return
	}
	r.receiver.Close()
}
