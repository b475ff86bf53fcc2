package judge

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// Stream is a way of messages through entities of the cluster: from where they are sent to where they are received.
// Its log has everything that its clients have seen.
type Stream struct {
	history.Log

	Name     string
	To       fsm.EntityRef
	From     []Source
	Entities []fsm.Entity // all that hold messages

	HasSessions bool
	IsExact     bool // it is judged up to a restore only: what follows depends on when each partition was copied
	IsLinear    bool // its history is checked by CheckLinear: its queue forwards nothing and is in one partition

	// Expect says whether a message must arrive at the source with a name; nil: it must, at every source.
	Expect   func(m *Sent, source string) Expectation
	Sessions *Sessions
	Lives    *Lives  // nil: no message expires
	Purges   *Purges // nil: none is purged
	Takes    *Takes  // nil: it is not received by receive-and-delete
	Clocks   *Clocks // nil: every clock is right

	mu         sync.Mutex
	due        map[string]time.Time   // by message: scheduled for
	fates      map[string]Expectation // by message: what its cancellation means
	places     map[string]string      // by message: the source at which it is scheduled
	found      []string               // what its clients found to be wrong
	isRestored bool                   // the cluster is restored: then the clients of an exact stream find nothing more
}

// NewStream returns a stream without entities.
func NewStream(name string) *Stream {
	return &Stream{Name: name, due: make(map[string]time.Time), Sessions: newSessions()}
}

// Source is where a stream is received. Every message must arrive at each source with a different name.
type Source struct {
	Name string
	At   fsm.EntityRef
}

// Expectation says whether a message must arrive at a source.
type Expectation int

// The expectations.
const (
	Must Expectation = iota
	May
	Never
)

// Sent is what a sender knows of a message.
type Sent struct {
	ID         string
	Begun      time.Time
	Ended      time.Time // when the sender knew the outcome; zero: never
	IsAccepted bool
}

// sourceNames returns the different names of the sources.
func (s *Stream) sourceNames() []string {
	var names []string
	seen := make(map[string]bool)
	for _, from := range s.From {
		if !seen[from.Name] {
			seen[from.Name] = true
			names = append(names, from.Name)
		}
	}
	return names
}

// Find notes what a client found to be wrong.
func (s *Stream) Find(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isRestored || !s.IsExact {
		s.found = append(s.found, text)
	}
}

// Restored is called when the cluster is lost, before another one is started from its copy, which need not know what the
// copy does not have.
func (s *Stream) Restored() {
	s.Sessions.forgetLocks()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isRestored = true
}

// CheckLife notes a message that expired too early or too late. It was enqueued at a time, and asked for at another one.
func (s *Stream) CheckLife(id string, enqueued fsm.Instant, isDead bool, asked time.Time) {
	if s.Lives == nil {
		return
	}
	if found := s.Lives.check(id, time.UnixMilli(int64(enqueued)), isDead, asked, s.Clocks); found != "" {
		s.Find(found)
	}
}
