package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// heartbeats aligns heartbeats, and signals those that were answered.
type heartbeats struct {
	mu     sync.Mutex
	next   map[raft.ServerID]chan struct{}  // closed with the next answered heartbeat
	urgent int                              // callers of Urgent that are not done
	hurry  chan struct{}                    // closed by the next call of Urgent
	sent   map[raft.ServerID]time.Time      // when the last heartbeat was sent
	failed map[raft.ServerID]*atomic.Uint64 // how many failed or were refused
}

// commonBeat is how many intervals are between two moments at which all heartbeats are sent, as long as raft and the peers take
// no longer: raft waits for two to four intervals between the answer to a heartbeat and the next one.
const commonBeat = 5

func newHeartbeats() *heartbeats {
	return &heartbeats{
		next: make(map[raft.ServerID]chan struct{}), hurry: make(chan struct{}), sent: make(map[raft.ServerID]time.Time),
		failed: make(map[raft.ServerID]*atomic.Uint64),
	}
}

// awaitBeat waits until the wall clock passes a multiple of commonBeat intervals, if that is at most as long after the last
// heartbeat to the peer, else until it passes a multiple of interval; or until Urgent is called. The heartbeats of all groups are
// therefore sent, and answered, at the same moments: a member with many idle groups would otherwise wake up for each of them.
func (b *heartbeats) awaitBeat(id raft.ServerID, interval time.Duration, closed <-chan struct{}) {
	b.mu.Lock()
	urgent, hurry, sent := b.urgent, b.hurry, b.sent[id]
	b.mu.Unlock()
	if interval > 0 && urgent == 0 {
		now := time.Now()
		wait := untilMultiple(now, commonBeat*interval)
		if now.Add(wait).Sub(sent) > commonBeat*interval {
			wait = untilMultiple(now, interval)
		}
		beat := time.NewTimer(wait)
		defer beat.Stop()
		select {
		case <-beat.C:
		case <-hurry:
		case <-closed:
		}
	}
	b.mu.Lock()
	b.sent[id] = time.Now()
	b.mu.Unlock()
}

// untilMultiple returns the time until the wall clock passes a multiple of d.
func untilMultiple(now time.Time, d time.Duration) time.Duration {
	return d - time.Duration(now.UnixNano())%d
}

// Urgent sends heartbeats at once until done is called: raft waits for one of them.
func (t Transport) Urgent() (done func()) {
	b := t.heartbeats
	b.mu.Lock()
	defer b.mu.Unlock()
	b.urgent++
	close(b.hurry)
	b.hurry = make(chan struct{})
	return func() {
		b.mu.Lock()
		b.urgent--
		b.mu.Unlock()
	}
}

// wait returns a channel that is closed when the peer answers its next heartbeat.
func (b *heartbeats) wait(id raft.ServerID) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next[id] == nil {
		b.next[id] = make(chan struct{})
	}
	return b.next[id]
}

// failures returns the number of heartbeats to a peer that have failed, or that it has refused, which it does when it knows a later
// term.
func (b *heartbeats) failures(id raft.ServerID) *atomic.Uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed[id] == nil {
		b.failed[id] = new(atomic.Uint64)
	}
	return b.failed[id]
}

func (b *heartbeats) notify(id raft.ServerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.next[id]; c != nil {
		close(c)
		delete(b.next, id)
	}
}
