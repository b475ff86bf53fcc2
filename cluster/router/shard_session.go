package router

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// acceptEarly is how long before its time a wait for any session ends: clients measure the same time,
// and the answer should reach them first.
const acceptEarly = 50 * time.Millisecond

// acceptAny is AcceptSession of the next session of a partitioned entity: it waits at every
// shard, and the first that has one wins. Which session is the oldest is known only within
// a shard.
type acceptAny struct {
	done func(fsm.Code, *SessionReceiver)

	mu      sync.Mutex
	timer   *time.Timer // ends the wait without the shards that have not answered
	cancels []func()
	left    int // shards that have not answered
	ended   bool
	busy    bool // some shard answered ServerBusy
}

// accept accepts a named session in its shard, and any session in the first shard that has one.
func (s *sharded) accept(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, *SessionReceiver)) (cancel func()) {
	if !wants.Named && at.Sub == fsm.MainQueue {
		return s.acceptAny(at, wants, receiveAndDelete, wait, done)
	}
	shard := 0
	if wants.Named {
		shard = shards.Hash(&at.Entity, wants.ID)
	}
	return s.single.acceptAt(shards.Ref(at, shard), shard, wants, receiveAndDelete, wait, done)
}

func (s *sharded) acceptAny(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, *SessionReceiver)) (cancel func()) {
	a := &acceptAny{done: done, left: len(at.Shards)}
	wait = min(wait, rpc.LockWaitMax)
	a.timer = time.AfterFunc(wait-min(wait/8, acceptEarly), a.expire)
	first := int(s.turns.Add(1) % uint64(len(at.Shards)))
	for i := range at.Shards {
		shard := (first + i) % len(at.Shards)
		cancel := s.single.acceptAt(shards.Ref(at, shard), shard, wants, receiveAndDelete, wait, a.handleAccept)
		a.mu.Lock()
		a.cancels = append(a.cancels, cancel)
		ended := a.ended
		a.mu.Unlock()
		if ended {
			a.cancel()
		}
	}
	return a.cancel
}

// handleAccept handles the answer of each shard. A session that arrives after another one won is
// released immediately, which counts no failed delivery.
func (a *acceptAny) handleAccept(code fsm.Code, s *SessionReceiver) {
	a.mu.Lock()
	a.left--
	a.busy = a.busy || code == fsm.ServerBusy
	mayPass := code == fsm.Timeout || code == fsm.ServerBusy
	wins := !a.ended && (!mayPass || a.left == 0)
	a.ended = a.ended || wins
	if mayPass && a.busy {
		code = fsm.ServerBusy
	}
	a.mu.Unlock()
	if !wins {
		if s != nil {
			s.Close()
		}
		return
	}
	a.timer.Stop()
	a.done(code, s)
	a.cancel()
}

func (a *acceptAny) expire() {
	a.mu.Lock()
	ended := a.ended
	a.ended = true
	a.mu.Unlock()
	if !ended {
		a.done(fsm.Timeout, nil)
		a.cancel()
	}
}

func (a *acceptAny) cancel() {
	a.mu.Lock()
	cancels := a.cancels
	a.cancels = nil
	a.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}
