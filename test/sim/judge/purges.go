package judge

import (
	"fmt"
	"sync"
	"time"

	"github.com/peeklock/peeklock/test/history"
)

// Purges are the requests to purge messages of a stream, which must explain why no receiver got them.
type Purges struct {
	mu  sync.Mutex
	all []Purge
}

// Purge is one request to purge messages.
type Purge struct {
	Ended   time.Time // zero: no answer came
	Removed int
	Unknown bool // whether and how many messages were removed
}

// Add notes a request.
func (p *Purges) Add(done Purge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, done)
}

// check compares the messages that no receiver got with what was purged: each must have been sent before the
// end of a purge that removed something, and together they must be as many as were removed.
func (p *Purges) check(events []history.Event) (found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last time.Time
	removed, isUnknown := 0, false
	for _, one := range p.all {
		removed += one.Removed
		isUnknown = isUnknown || one.Unknown
		if (one.Removed > 0 || one.Unknown) && one.Ended.After(last) {
			last = one.Ended
		}
	}
	sent, accepted, completed, delivered := make(map[string]time.Time), make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for i := range events {
		e := &events[i]
		switch e.Kind { //nolint:exhaustive // the others do not matter
		case history.SendBegun:
			sent[e.ID] = e.At
		case history.SendAccepted:
			accepted[e.ID] = true
		case history.SendRefused:
			delete(sent, e.ID)
		case history.Delivered:
			delivered[e.ID] = true
		case history.Completed:
			completed[e.ID] = true
		}
	}
	missing := 0
	for id := range accepted {
		if delivered[id] {
			continue
		}
		missing++
		if sent[id].After(last) {
			found = append(found, fmt.Sprintf("message %s was neither received nor purged", id))
		}
	}
	if missing > removed && !isUnknown {
		found = append(found, fmt.Sprintf("%d messages are missing and %d were purged", missing, removed))
	}
	if left := len(sent) - len(completed); removed > left {
		found = append(found, fmt.Sprintf("%d messages were purged, and at most %d were not completed", removed, left))
	}
	return found
}
