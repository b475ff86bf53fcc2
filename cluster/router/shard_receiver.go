package router

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

const (
	// keepFor is how long surplus messages are kept for the next Lock.
	keepFor = 200 * time.Millisecond
	// silentShardGrace is how long after the wait time of a Lock to wait for a silent shard, and shardWithoutLeaderGrace how
	// long to wait for one that has no leader: no message can be locked there.
	silentShardGrace        = time.Second
	shardWithoutLeaderGrace = 150 * time.Millisecond
)

// shardReceiver gets messages for one receiving link from a partitioned entity: it has a receiver for
// every shard, and one Lock that asks all of them at the same time.
//
//	Lock -> messages kept?  returned immediately
//	     -> each idle shard: its share of the messages; the first that has some ends the Lock,
//	        and messages from the others are kept for the next one
//
// Shards take turns message by message. A shard is not asked while messages of it are kept, so at
// most one share of each is kept, and none waits without a Lock. Messages that no Lock asks for
// within keepFor are released, which counts no failed delivery. A silent shard delays only its own
// receiver. A Lock that does not wait, as a drain makes it, ends the waits of earlier ones and asks their shards again:
// a wait that was cancelled may have ended before the shard searched for messages.
//
// With receiveAndDelete messages are locked, and completed before they are returned: kept ones can
// be released, and no message is lost when a link ends.
type shardReceiver struct {
	sharded          *sharded
	at               fsm.EntityRef
	receiveAndDelete bool

	mu        sync.Mutex
	parts     []shardPart
	nextShard int // the shard whose turn it is
	call      *shardLock
	keepTimer *time.Timer // runs between two Locks; nil: none does
	closed    bool
}

// shardPart is the receiver of one shard.
type shardPart struct {
	receiver *Receiver
	busy     bool // has an outstanding Lock
	askAgain bool // the outstanding Lock is of an earlier call and was cancelled for this one
	kept     []fsm.Delivery
}

// shardLock is the outstanding Lock.
type shardLock struct {
	max, maxBytes int
	until         time.Time
	timer         *time.Timer
	done          func(fsm.Code, []fsm.Delivery)
	settling      bool // waits only for its messages to be completed
}

// receiver opens a receiver that asks all shards.
func (s *sharded) receiver(at fsm.EntityRef, receiveAndDelete bool) *Receiver {
	f := &shardReceiver{sharded: s, at: at, receiveAndDelete: receiveAndDelete, parts: make([]shardPart, len(at.Shards))}
	f.nextShard = int(s.turns.Add(1) % uint64(len(at.Shards))) // links start at different shards
	for shard := range f.parts {
		f.parts[shard].receiver = s.single.receiverOf(shards.Ref(at, shard), false, shard)
	}
	return &Receiver{shards: f}
}

func (f *shardReceiver) lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	call := &shardLock{
		max: max(1, min(most, client.LockMessagesMax)), maxBytes: max(1, min(mostBytes, client.LockBytesMax)),
		until: time.Now().Add(min(wait, rpc.LockWaitMax)), done: done,
	}
	f.mu.Lock()
	if f.closed || f.call != nil {
		f.mu.Unlock()
		done(fsm.ServerBusy, nil)
		return
	}
	f.call = call
	if f.keepTimer != nil {
		f.keepTimer.Stop()
		f.keepTimer = nil
	}
	if got := f.collect(call); len(got) > 0 {
		f.finish(call, fsm.OK, got)
		return
	}
	call.timer = time.AfterFunc(time.Until(call.until)+shardWithoutLeaderGrace, func() { f.expire(call) })
	var idle, waiting []int
	for i := range f.parts {
		shard := (f.nextShard + i) % len(f.parts)
		part := &f.parts[shard]
		if part.askAgain = part.busy && wait <= 0; part.askAgain {
			waiting = append(waiting, shard)
		}
		if !part.busy {
			part.busy = true
			idle = append(idle, shard)
		}
	}
	f.mu.Unlock()
	for _, shard := range waiting {
		f.parts[shard].receiver.Cancel()
	}
	for _, shard := range idle {
		f.ask(shard, call)
	}
}

// ask locks the share of a shard; mu is not held.
func (f *shardReceiver) ask(shard int, call *shardLock) {
	n := len(f.parts)
	f.parts[shard].receiver.Lock((call.max+n-1)/n, max(1, call.maxBytes/n), time.Until(call.until), func(code fsm.Code, got []fsm.Delivery) {
		f.handleDeliveries(shard, code, got)
	})
}

// handleDeliveries handles the messages that a shard has locked.
func (f *shardReceiver) handleDeliveries(shard int, code fsm.Code, got []fsm.Delivery) {
	f.mu.Lock()
	part := &f.parts[shard]
	part.busy = false
	part.kept = append(part.kept, got...)
	call := f.call
	switch {
	case f.closed || call == nil && f.keepTimer == nil:
		f.release(f.takeKept())
		return
	case call == nil || call.settling:
		f.mu.Unlock()
		return
	}
	if found := f.collect(call); len(found) > 0 {
		f.finish(call, fsm.OK, found)
		return
	}
	switch {
	case code != fsm.OK && code != fsm.Timeout:
		f.finish(call, code, nil)
	case part.askAgain, code == fsm.OK && time.Now().Before(call.until):
		part.busy, part.askAgain = true, false // an earlier Lock asked it, or it was cancelled
		f.mu.Unlock()
		f.ask(shard, call)
	case f.isWaiting(call):
		f.mu.Unlock()
	default:
		f.finish(call, fsm.OK, nil)
	}
}

// isWaiting reports whether the call waits for a shard that has not answered; mu is held.
func (f *shardReceiver) isWaiting(call *shardLock) bool {
	late := time.Since(call.until)
	for i := range f.parts {
		part := &f.parts[i]
		if part.busy && (late < shardWithoutLeaderGrace || late < silentShardGrace && part.receiver.receiver.HasLeader()) {
			return true
		}
	}
	return false
}

// collect removes kept messages, one of each shard in turn, as many as the call wants; mu is held.
func (f *shardReceiver) collect(call *shardLock) (got []fsm.Delivery) {
	bytesLeft := call.maxBytes
	for empty := 0; empty < len(f.parts) && len(got) < call.max; {
		part := &f.parts[f.nextShard]
		if len(part.kept) == 0 {
			empty++
			f.nextShard = (f.nextShard + 1) % len(f.parts)
			continue
		}
		size := len(part.kept[0].Payload) + len(part.kept[0].Patches)
		if size > bytesLeft && len(got) > 0 {
			break
		}
		bytesLeft -= size
		empty = 0
		got = append(got, part.kept[0])
		part.kept[0] = fsm.Delivery{}
		if part.kept = part.kept[1:]; len(part.kept) == 0 {
			part.kept = nil
		}
		f.nextShard = (f.nextShard + 1) % len(f.parts)
	}
	return got
}

// finish completes the messages of a receive-and-delete and ends the call; mu is held and is
// released.
func (f *shardReceiver) finish(call *shardLock, code fsm.Code, got []fsm.Delivery) {
	if call.timer != nil {
		call.timer.Stop()
	}
	if f.receiveAndDelete && len(got) > 0 {
		call.settling = true
		f.mu.Unlock()
		settlements := fsm.SettleAll(got, fsm.Complete)
		f.sharded.settle(f.at, settlements, func(codes []fsm.Code) {
			taken := got[:0]
			for i := range got {
				if codes[i] == fsm.OK {
					taken = append(taken, got[i])
				}
			}
			f.mu.Lock()
			f.complete(call, fsm.OK, taken)
		})
		return
	}
	f.complete(call, code, got)
}

// complete ends the call; mu is held and is released.
func (f *shardReceiver) complete(call *shardLock, code fsm.Code, got []fsm.Delivery) {
	f.call = nil
	if !f.closed {
		f.keepTimer = time.AfterFunc(keepFor, f.releaseKept)
	}
	f.mu.Unlock()
	call.done(code, got)
	f.mu.Lock()
	idle := f.call == nil
	f.mu.Unlock()
	if idle {
		f.cancelParts() // or waiting shards would lock messages that no Lock asks for
	}
}

// expire ends a call that a silent shard delays, or continues to wait for a shard that has a leader.
func (f *shardReceiver) expire(call *shardLock) {
	f.mu.Lock()
	if f.call != call || call.settling {
		f.mu.Unlock()
		return
	}
	if f.isWaiting(call) {
		call.timer.Reset(time.Until(call.until) + silentShardGrace)
		f.mu.Unlock()
		return
	}
	f.finish(call, fsm.OK, f.collect(call))
}

// releaseKept releases kept messages because no Lock came.
func (f *shardReceiver) releaseKept() {
	f.mu.Lock()
	if f.call != nil || f.keepTimer == nil {
		f.mu.Unlock()
		return
	}
	f.keepTimer.Stop() // it may have been started after this call's timer fired
	f.keepTimer = nil
	f.release(f.takeKept())
}

// cancelParts cancels the receivers of all shards; mu is not held.
func (f *shardReceiver) cancelParts() {
	for i := range f.parts {
		f.parts[i].receiver.Cancel()
	}
}

// takeKept removes and returns all kept messages; mu is held.
func (f *shardReceiver) takeKept() (kept []fsm.Delivery) {
	for i := range f.parts {
		kept = append(kept, f.parts[i].kept...)
		f.parts[i].kept = nil
	}
	return kept
}

// release unlocks messages; mu is held and is released.
func (f *shardReceiver) release(kept []fsm.Delivery) {
	f.mu.Unlock()
	if len(kept) > 0 {
		f.sharded.settle(f.at, fsm.SettleAll(kept, fsm.Release), func([]fsm.Code) {})
	}
}

// cancel ends the outstanding Lock with the kept messages; later ones are released.
func (f *shardReceiver) cancel() {
	f.mu.Lock()
	call := f.call
	if call == nil || call.settling {
		f.mu.Unlock()
		return
	}
	f.finish(call, fsm.OK, f.collect(call))
	f.releaseKept()
}

// close ends the outstanding Lock and closes the receivers of all shards.
func (f *shardReceiver) close() {
	f.mu.Lock()
	f.closed = true
	if f.keepTimer != nil {
		f.keepTimer.Stop()
		f.keepTimer = nil
	}
	call := f.call
	if call != nil && call.settling {
		call = nil // it returns its messages as soon as they are completed
	}
	if call != nil {
		f.call = nil
		call.timer.Stop()
	}
	f.release(f.takeKept())
	if call != nil {
		call.done(fsm.OK, nil)
	}
	for i := range f.parts {
		f.parts[i].receiver.Close()
	}
}
