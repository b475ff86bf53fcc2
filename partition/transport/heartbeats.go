package transport

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// heartbeats aligns heartbeats, and signals those that were answered.
type heartbeats struct {
	mu     sync.Mutex
	peers  map[raft.ServerID]*peerHeartbeats
	urgent int           // callers of Urgent that are not done
	hurry  chan struct{} // closed by the next call of Urgent
}

// peerHeartbeats describes the heartbeats to one replica. The mutex of heartbeats guards next and sent.
type peerHeartbeats struct {
	next   chan struct{} // closed with the next answered heartbeat; nil if nobody waits for it
	sent   time.Time     // when the last heartbeat was sent
	failed atomic.Uint64 // how many failed or were refused
}

// commonBeat is how many intervals are between two moments at which all heartbeats are sent, as long as raft and the peers take
// no longer: raft waits for two to four intervals between the answer to a heartbeat and the next one.
const commonBeat = 5

func newHeartbeats() *heartbeats {
	return &heartbeats{peers: make(map[raft.ServerID]*peerHeartbeats), hurry: make(chan struct{})}
}

// peer returns what is known of a replica. The caller holds mu.
func (b *heartbeats) peer(id raft.ServerID) *peerHeartbeats {
	p := b.peers[id]
	if p == nil {
		p = new(peerHeartbeats)
		b.peers[id] = p
	}
	return p
}

// forgetAllBut forgets the replicas that are not in the group. A pipeline to one of the others keeps its counter of failures.
func (b *heartbeats) forgetAllBut(servers []raft.Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.peers, func(id raft.ServerID, _ *peerHeartbeats) bool {
		return !slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == id })
	})
}

// awaitBeat waits until the wall clock passes a multiple of commonBeat intervals, if that is at most as long after the last
// heartbeat to the peer, else until it passes a multiple of interval; or until Urgent is called. The heartbeats of all groups are
// therefore sent, and answered, at the same moments: a member with many idle groups would otherwise wake up for each of them.
func (b *heartbeats) awaitBeat(id raft.ServerID, interval time.Duration, closed <-chan struct{}) {
	b.mu.Lock()
	urgent, hurry, sent := b.urgent, b.hurry, b.peer(id).sent
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
	b.peer(id).sent = time.Now()
	b.mu.Unlock()
}

// untilMultiple returns the time until the wall clock passes a multiple of d.
func untilMultiple(now time.Time, d time.Duration) time.Duration {
	return d - time.Duration(now.UnixNano())%d
}

// wait returns a channel that is closed when the peer answers its next heartbeat.
func (b *heartbeats) wait(id raft.ServerID) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peer(id)
	if p.next == nil {
		p.next = make(chan struct{})
	}
	return p.next
}

// failures returns the number of heartbeats to a peer that have failed, or that it has refused, which it does when it knows a later
// term.
func (b *heartbeats) failures(id raft.ServerID) *atomic.Uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &b.peer(id).failed
}

func (b *heartbeats) notify(id raft.ServerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.peer(id); p.next != nil {
		close(p.next)
		p.next = nil
	}
}
