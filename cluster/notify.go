package cluster

import "sync"

// broadcast wakes all goroutines that wait for a change. Its zero value is ready; all methods may be
// called concurrently.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next notify closes. Take it before reading the state that may
// change, or a change in between is missed.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// notify wakes all waiters.
func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// wakeUp signals a channel that holds one signal. Signals that were not received yet are merged.
func wakeUp(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
