package partition

import (
	"sync"
	"time"
)

// probe asks raft's main goroutine whether it is there: one question at a time.
type probe struct {
	mu    sync.Mutex
	asked time.Time // of the question that is open, zero when none is
}

// Unanswered says for how long raft's main goroutine has owed an answer, and asks it again when it
// owes none: so a first call returns 0. Who leads or whether there is a quorum plays no part: a
// follower answers at once, a leader without a quorum when its lease has ended. A replica that has
// stopped answers. Each call costs a goroutine until the answer, and a leader a round of heartbeats,
// so every few seconds is often enough. May be called concurrently.
func (g *Group) Unanswered() time.Duration {
	p := &g.probe
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked.IsZero() {
		return time.Since(p.asked)
	}
	select {
	case <-g.ending:
		return 0
	default:
	}
	p.asked = time.Now()
	r := g.inst.Load().raft
	go func() {
		_ = r.VerifyLeader().Error() // whatever it says, it says something
		p.mu.Lock()
		p.asked = time.Time{}
		p.mu.Unlock()
	}()
	return 0
}
