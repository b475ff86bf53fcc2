package sim

import (
	"time"

	"github.com/peeklock/peeklock/test/history/linear"
)

const (
	linearQueue  = "queue-0"   // whose history is checked: it forwards nothing and is in one partition
	linearWithin = time.Second // the search of one message or session
)

// checkLinear adds what Porcupine finds in the histories of a queue and of the sessions, up to a restore. It takes real time.
func (r *Report) checkLinear() {
	for _, s := range r.streams {
		var found linear.Result
		switch {
		case s.hasSessions:
			found = linear.Sessions(s.sessions.requests, linearWithin)
		case s.name == linearQueue:
			found = linear.Queue(r.restored.parts(s.Events())[0], linearWithin)
		}
		r.Linear.Checked += found.Checked
		r.Linear.Undecided += found.Undecided
		r.Linear.Found = append(r.Linear.Found, found.Found...)
	}
}
