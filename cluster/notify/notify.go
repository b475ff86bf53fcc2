package notify

import (
	"context"
	"sync"
	"time"
)

// Broadcast wakes all goroutines that wait for a change. Its zero value is ready; all methods may be
// called concurrently.
type Broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait returns a channel that the next Notify closes. Take it before reading the state that may
// change, or a change in between is missed.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Notify wakes all waiters.
func (b *Broadcast) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// WakeUp sends a signal to a channel with a buffer of one. Signals that were not received yet are merged.
func WakeUp(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
