package cluster

import "sync"

// beacon wakes everybody who waits for something to change. The zero beacon is ready.
type beacon struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that is closed by the next ring. Take it before looking at
// what may change, or a ring in between is missed.
func (b *beacon) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *beacon) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
