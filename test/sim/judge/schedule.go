package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// cancelWithin is how long after it was due a message may still be cancelled: its partition may have no leader.
const cancelWithin = 2 * time.Minute

// ExpectFates expects a message at every source, unless it was cancelled. It is called before the first client starts.
func (s *Stream) ExpectFates() {
	s.fates = make(map[string]Expectation)
	s.Expect = func(m *Sent, _ string) Expectation {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fates[m.ID]
	}
}

// ExpectFatesAtPlaces is ExpectFates for messages that are scheduled at one source each: at the first one, unless SetPlace says
// otherwise.
func (s *Stream) ExpectFatesAtPlaces() {
	s.fates, s.places = make(map[string]Expectation), make(map[string]string)
	s.Expect = func(m *Sent, source string) Expectation {
		s.mu.Lock()
		defer s.mu.Unlock()
		if source != cmp.Or(s.places[m.ID], s.From[0].Name) {
			return Never
		}
		return s.fates[m.ID]
	}
}

// SetPlace notes at which source a message is scheduled, before it is.
func (s *Stream) SetPlace(id, source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[id] = source
}

// SetDue notes for when a message is scheduled, before it is sent.
func (s *Stream) SetDue(id string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[id] = at
}

// Cancelled notes what the answer to a cancellation, asked for at a time, means for a message. isThere is false if the
// message may still be on its way to the entity in which it waits. It reports whether the message is certainly cancelled.
func (s *Stream) Cancelled(id string, asked time.Time, code fsm.Code, heard, isThere bool) (isDone bool) {
	s.mu.Lock()
	due := s.due[id]
	switch {
	case s.isRestored: // maybe since it was asked
	case heard && code == fsm.OK:
		isDone = true
		s.fates[id] = Never
	case heard && code == fsm.MessageNotFound:
		s.fates[id] = Must
	default:
		s.fates[id] = May
	}
	s.mu.Unlock()
	switch now := time.Now(); {
	case heard && code == fsm.MessageNotFound && isThere && now.Before(due.Add(-ClockSlack-s.Clocks.Ahead(now))):
		s.Find(fmt.Sprintf("message %s, due at %v, could not be cancelled at %v: %v", id, due, now, code))
	case heard && code == fsm.OK && asked.After(due.Add(cancelWithin)):
		s.Find(fmt.Sprintf("message %s, due at %v, was cancelled at %v", id, due, asked))
	}
	return isDone
}

// CheckDue notes a message that comes before it was scheduled for, although no clock was wrong, or earlier than wrong
// clocks may cause.
func (s *Stream) CheckDue(id string) {
	s.mu.Lock()
	due, isScheduled := s.due[id]
	s.mu.Unlock()
	if isScheduled && time.Now().Before(due.Add(-s.Clocks.early(time.Now())).Truncate(time.Millisecond)) {
		s.Find(fmt.Sprintf("early: message %s came at %v, due at %v", id, time.Now(), due))
	}
}
