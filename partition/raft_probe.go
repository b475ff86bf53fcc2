package partition

import (
	"sync"
	"time"
)

// raftProbe asks raft's main goroutine whether it is there: one question at a time.
type raftProbe struct {
	mu      sync.Mutex
	askedAt time.Time // of the question that is open, zero when none is
}

// UnansweredFor says for how long raft's main goroutine has owed an answer, and asks it again when it
// owes none: so a first call returns 0. Who leads or whether there is a quorum plays no part: a
// follower answers at once, a leader without a quorum when its lease has ended. A replica that has
// stopped answers. Each call costs a goroutine until the answer, and a leader a round of heartbeats,
// so every few seconds is often enough. May be called concurrently.
func (g *Group) UnansweredFor() time.Duration {
	p := &g.probe
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.askedAt.IsZero() {
		return time.Since(p.askedAt)
	}
	select {
	case <-g.closing:
		return 0
	default:
	}
	p.askedAt = time.Now()
	r := g.instance.Load().raft
	go func() {
		_ = r.VerifyLeader().Error() // whatever it says, it says something
		p.mu.Lock()
		p.askedAt = time.Time{}
		p.mu.Unlock()
	}()
	return 0
}
