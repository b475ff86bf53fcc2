package partition

import (
	"sync"
	"time"
)

// raftProbe measures whether raft's main goroutine responds, with one request at a time.
type raftProbe struct {
	mu      sync.Mutex
	askedAt time.Time // time of the open request, zero when none is open
}

// UnansweredFor returns the time for which raft's main goroutine has not answered a request, and sends a new
// request when none is open: so a first call returns 0. Leadership and quorum do not matter: a follower
// answers at once, a leader without a quorum when its lease has ended. A replica that has stopped answers.
// Each request costs a goroutine until the answer, and a leader a round of heartbeats, so a call every few
// seconds is enough. May be called concurrently.
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
		_ = r.VerifyLeader().Error() // any answer will do
		p.mu.Lock()
		p.askedAt = time.Time{}
		p.mu.Unlock()
	}()
	return 0
}
