package judge

import (
	"time"

	"github.com/peeklock/peeklock/test/history/linear"
)

const linearWithin = time.Second // the search of one message or session

// CheckLinear returns what Porcupine finds in the history of a linear stream, or of the sessions of one with sessions, up to a
// restore. It takes real time, and is called when all clients have ended.
func (s *Stream) CheckLinear(r *Restoration) (found linear.Result) {
	switch {
	case s.HasSessions:
		found = linear.Sessions(s.Sessions.requests, linearWithin)
	case s.IsLinear:
		found = linear.Queue(r.parts(s.Events())[0], linearWithin)
	}
	return found
}
