package throttle

import (
	"sync"
	"time"
)

// LogEvery is the least time between two log lines for one key.
const LogEvery = 10 * time.Second

// keysMax is the number of keys remembered at a time. While all of them are recent, no further key may log.
const keysMax = 256

// Log allows one log line per key and LogEvery, for at most keysMax keys at a time, so that a peer that
// connects again and again does not fill the log. Its zero value is ready; it may be used concurrently.
type Log struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Allow reports whether a line for key may be logged at the time now. If so, it remembers that time.
func (r *Log) Allow(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last[key]) < LogEvery {
		return false
	}
	if len(r.last) >= keysMax {
		for k, at := range r.last {
			if now.Sub(at) >= LogEvery {
				delete(r.last, k)
			}
		}
		if len(r.last) >= keysMax {
			return false
		}
	}
	if r.last == nil {
		r.last = make(map[string]time.Time)
	}
	r.last[key] = now
	return true
}
