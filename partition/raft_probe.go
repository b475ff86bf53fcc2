package partition

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// raftProbe measures whether raft's main goroutine responds, with one request at a time.
type raftProbe struct {
	mu      sync.Mutex
	askedAt time.Time // time of the open request, zero when none is open
}

func (p *raftProbe) unansweredFor(ask func() raft.Future, ended, closing <-chan struct{}) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.askedAt.IsZero() {
		return time.Since(p.askedAt)
	}
	select {
	case <-closing:
		return 0
	default:
	}
	p.askedAt = time.Now()
	answered := make(chan struct{})
	go awaitAnswer(ask, answered)
	go p.finish(answered, ended)
	return 0
}

// awaitAnswer makes a request and waits for any answer. Raft never answers requests that it has not read when it is shut down:
// this goroutine stays then, so it refers neither to raft nor to the group, whose state would stay too.
func awaitAnswer(ask func() raft.Future, answered chan<- struct{}) {
	_ = ask().Error()
	close(answered)
}

// finish ends the open request when it is answered, or when raft has ended, which may never answer then.
func (p *raftProbe) finish(answered, ended <-chan struct{}) {
	select {
	case <-answered:
	case <-ended:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.askedAt = time.Time{}
}
