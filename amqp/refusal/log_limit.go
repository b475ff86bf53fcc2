package refusal

import (
	"net/netip"
	"sync"
	"time"
)

// Limits of the log lines about refusals.
const (
	LogLinesMax   = 20          // lines of one client within LogEvery
	LogEvery      = time.Second // one window
	logClientsMax = 1024        // clients that are counted separately; all others share one count
)

// LogLimiter allows a few log lines per client and second, so that a client that repeats an error
// does not fill the log. Its zero value is ready, and may be used concurrently.
type LogLimiter struct {
	mu      sync.Mutex
	clients map[netip.Addr]*logWindow
	others  logWindow // window of all clients beyond logClientsMax
}

// logWindow counts the log lines of one client in the last second.
type logWindow struct {
	since      time.Time
	lines      int
	suppressed int // lines that were suppressed since the last logged one
}

// Allow reports whether a line about a client may be logged now, and how many were suppressed since the last
// logged one.
func (l *LogLimiter) Allow(client netip.Addr, now time.Time) (ok bool, before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.window(client, now)
	if now.Sub(w.since) >= LogEvery {
		w.since, w.lines = now, 0
	}
	if w.lines >= LogLinesMax {
		w.suppressed++
		return false, 0
	}
	w.lines++
	before, w.suppressed = w.suppressed, 0
	return true, before
}

// window returns the window of a client.
func (l *LogLimiter) window(client netip.Addr, now time.Time) *logWindow {
	if w := l.clients[client]; w != nil {
		return w
	}
	if len(l.clients) >= logClientsMax {
		if now.Sub(l.others.since) < LogEvery && !l.others.since.IsZero() {
			return &l.others // a free entry was searched for in this second already
		}
		for other, w := range l.clients {
			if now.Sub(w.since) >= LogEvery {
				delete(l.clients, other)
			}
		}
		if len(l.clients) >= logClientsMax {
			return &l.others
		}
	}
	if l.clients == nil {
		l.clients = make(map[netip.Addr]*logWindow)
	}
	w := &logWindow{since: now}
	l.clients[client] = w
	return w
}
