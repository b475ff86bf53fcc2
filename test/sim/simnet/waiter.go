package simnet

import (
	"sync"
	"time"
)

// waiter is where a goroutine waits for a change of a pipe. A segment that is sent sets the timer to its arrival, so
// that it wakes its reader once. The mutex of the network guards it.
type waiter struct {
	changed chan struct{} // nil before the first wait
	timer   *time.Timer
	waiting int
	until   time.Time // for which the timer is set; zero: it is not
}

// wait waits for a change, or until a time that is not zero. The mutex is held.
func (w *waiter) wait(mu *sync.Mutex, until time.Time) {
	if w.changed == nil {
		w.changed, w.timer = make(chan struct{}, 1), time.NewTimer(0)
	}
	w.timer.Stop()
	w.until = time.Time{}
	w.waiting++
	if !until.IsZero() {
		w.wakeAt(until)
	}
	mu.Unlock()
	select {
	case <-w.changed:
	case <-w.timer.C:
	}
	mu.Lock()
	if w.waiting--; w.waiting > 0 { // each looks for itself
		w.wake()
	}
}

// wakeAt wakes those who wait at a time, unless they wake before. The mutex is held.
func (w *waiter) wakeAt(at time.Time) {
	if w.waiting > 0 && (w.until.IsZero() || at.Before(w.until)) {
		w.until = at
		w.timer.Reset(time.Until(at))
	}
}

// wake wakes those who wait, before time passes: they may hold what others wait for. The mutex is held.
func (w *waiter) wake() {
	if w.waiting > 0 {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}
