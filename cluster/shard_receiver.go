package cluster

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const (
	// fanLinger is how long what was locked too much is kept for the next Lock.
	keepFor = 200 * time.Millisecond
	// fanGrace is how long past the time of a Lock a silent shard is waited for.
	silentShardGrace = time.Second
)

// shardReceiver is the source of one receiving link at a partitioned entity: a receiver for every
// shard, and one Lock that asks all of them at the same time.
//
//	Lock -> kept from before?  given at once
//	     -> each idle shard: its share of the messages; the first that has some ends the Lock
//	        and what the others bring is kept for the next one
//
// Shards take turns message by message. A shard asks nobody while something of it is kept,
// so no more is kept than one share each, and none waits without a Lock. What nobody asks
// for within fanLinger is released, which counts no attempt. A shard that is silent keeps its own receiver
// waiting and nobody else.
//
// With takes (receive-and-delete) messages are locked, and completed before they are
// given: what is kept can be released, and nothing is lost with a link that goes.
type shardReceiver struct {
	router           *Router
	at               fsm.EntityRef
	receiveAndDelete bool

	mu        sync.Mutex
	parts     []shardPart
	nextShard int // shard whose turn it is
	call      *shardLock
	keepTimer *time.Timer // runs between two Locks; nil: nothing is kept
	closed    bool
}

// shardPart is the receiver of one shard.
type shardPart struct {
	receiver *Receiver
	busy     bool // has a Lock under way
	kept     []fsm.Delivery
}

// shardLock is one Lock under way.
type shardLock struct {
	max, maxBytes int
	until         time.Time
	timer         *time.Timer
	done          func(fsm.Code, []fsm.Delivery)
	settling      bool // ended, but for the messages to be completed
}

func newShardReceiver(r *Router, at fsm.EntityRef, receiveAndDelete bool) *shardReceiver {
	f := &shardReceiver{router: r, at: at, receiveAndDelete: receiveAndDelete, parts: make([]shardPart, len(at.Shards))}
	f.nextShard = int(r.shardTurns.Add(1) % uint64(len(at.Shards))) // links begin at different shards
	for shard := range f.parts {
		f.parts[shard].receiver = r.receiver(shardRef(at, shard), false, shard)
	}
	return f
}

func (f *shardReceiver) lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	call := &shardLock{
		max: clamp(most, 1, lockMessagesMax), maxBytes: clamp(mostBytes, 1, lockBytesMax),
		until: time.Now().Add(min(wait, lockWaitMax)), done: done,
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
	call.timer = time.AfterFunc(time.Until(call.until)+silentShardGrace, func() { f.expire(call) })
	var idle []int
	for i := range f.parts {
		if shard := (f.nextShard + i) % len(f.parts); !f.parts[shard].busy {
			f.parts[shard].busy = true
			idle = append(idle, shard)
		}
	}
	f.mu.Unlock()
	for _, shard := range idle {
		f.ask(shard, call)
	}
}

// ask has a shard look for its share; mu is not held.
func (f *shardReceiver) ask(shard int, call *shardLock) {
	n := len(f.parts)
	f.parts[shard].receiver.Lock((call.max+n-1)/n, max(1, call.maxBytes/n), time.Until(call.until), func(code fsm.Code, got []fsm.Delivery) {
		f.handleDeliveries(shard, code, got)
	})
}

// handleDeliveries takes what a shard has found.
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
	case code == fsm.OK && time.Now().Before(call.until):
		part.busy = true // it was asked by an earlier Lock, or cancelled
		f.mu.Unlock()
		f.ask(shard, call)
	case f.isWaiting():
		f.mu.Unlock()
	default:
		f.finish(call, fsm.OK, nil)
	}
}

// isWaiting says whether some shard is still looking; mu is held.
func (f *shardReceiver) isWaiting() bool {
	for i := range f.parts {
		if f.parts[i].busy {
			return true
		}
	}
	return false
}

// collect takes what is kept, a message of each shard in turn, as much as the call wants;
// mu is held.
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

// finish ends a call; mu is held and is released.
func (f *shardReceiver) finish(call *shardLock, code fsm.Code, got []fsm.Delivery) {
	if call.timer != nil {
		call.timer.Stop()
	}
	if f.receiveAndDelete && len(got) > 0 {
		call.settling = true
		f.mu.Unlock()
		settlements := settleAll(got, fsm.Complete)
		f.router.Settle(f.at, settlements, func(codes []fsm.Code) {
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

// complete tells the asker; mu is held and is released.
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
		f.cancelParts() // shards that wait would lock for nobody what comes now
	}
}

// expire ends a call that a silent shard holds up.
func (f *shardReceiver) expire(call *shardLock) {
	f.mu.Lock()
	if f.call != call || call.settling {
		f.mu.Unlock()
		return
	}
	f.finish(call, fsm.OK, f.collect(call))
}

// releaseKept gives back what is kept because no Lock came.
func (f *shardReceiver) releaseKept() {
	f.mu.Lock()
	if f.call != nil || f.keepTimer == nil {
		f.mu.Unlock()
		return
	}
	f.keepTimer.Stop() // one that was started after this one had fired
	f.keepTimer = nil
	f.release(f.takeKept())
}

// cancelParts cancels the receivers of all shards; mu is not held.
func (f *shardReceiver) cancelParts() {
	for i := range f.parts {
		f.parts[i].receiver.Cancel()
	}
}

// takeKept takes all that is kept; mu is held.
func (f *shardReceiver) takeKept() (kept []fsm.Delivery) {
	for i := range f.parts {
		kept = append(kept, f.parts[i].kept...)
		f.parts[i].kept = nil
	}
	return kept
}

// release gives messages back to their places; mu is held and is released.
func (f *shardReceiver) release(kept []fsm.Delivery) {
	f.mu.Unlock()
	if len(kept) > 0 {
		f.router.Settle(f.at, settleAll(kept, fsm.Release), func([]fsm.Code) {})
	}
}

func settleAll(deliveries []fsm.Delivery, verb fsm.Verb) []fsm.Settlement {
	settlements := make([]fsm.Settlement, len(deliveries))
	for i := range deliveries {
		settlements[i] = fsm.Settlement{Lock: deliveries[i].Lock, Verb: verb}
	}
	return settlements
}

// cancel ends the Lock under way with what is there; what comes later is released.
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

// close ends the Lock under way and the receivers of all shards.
func (f *shardReceiver) close() {
	f.mu.Lock()
	f.closed = true
	if f.keepTimer != nil {
		f.keepTimer.Stop()
		f.keepTimer = nil
	}
	call := f.call
	if call != nil && call.settling {
		call = nil // its messages are given as soon as they are completed
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
