package sim

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// stream is a way of messages through entities of the cluster: from where they are sent to where they are received.
// Its log has everything that its clients have seen.
type stream struct {
	history.Log
	name string
	to   fsm.EntityRef
	from []source
	next atomic.Int64
	work []func(*load, *client, *stream) // clients besides senders and receivers, one each; they end with sending

	relay       *source // messages are moved from here to all sources by transactions; nil: none are
	isAMQP      bool    // its clients use the gateways, the others the routers of members
	isExact     bool    // it is judged up to a restore only: what follows depends on when each partition was copied
	resends     bool    // the sender sends messages again whose fate it does not know, and some that were accepted
	immediate   bool    // no message is scheduled
	schedules   bool    // all messages are, and some are cancelled
	redrives    bool    // dead letters are moved back
	takes       bool    // it is received by receive-and-delete
	isBacklog   bool    // it has no sender, and is received when sending ends
	hasSessions bool
	sessions    *sessionJudge
	clockError  time.Duration // by which messages may come too early: 0 if the plan changes no clock
	clocks      *clockSteps   // of all clocks together, by which messages may expire too early or too late; nil: none
	clocksAgree func() bool   // while it is false, messages may be received after their time to live

	// prepare completes the message with a number, before it is sent; nil: nothing is added.
	prepare func(c *client, m *fsm.Message, number int64)
	// expect says whether a message must arrive at the source with a name; nil: it must, at every source.
	expect func(m *sentMessage, source string) expectation
	// buries says which messages the receivers dead-letter and never complete; nil: none.
	buries func(id string) bool

	mu       sync.Mutex
	entities []fsm.Entity                // all that hold messages
	deferred map[fsm.SequenceNumber]bool // messages that may be deferred
	due      map[string]time.Time        // by message: scheduled for
	lives    map[string]time.Duration    // by message: its time to live
	fates    map[string]expectation      // by message: what its cancellation means
	far      map[string]bool             // messages that are scheduled at the second source
	rules    []*ruleLife                 // in the order of their begin
	purges   []purge
	served   period   // when senders and receivers last got answers
	found    []string // what its clients found to be wrong
	// unanswered are the requests of receive-and-delete without an answer.
	unanswered []take
	// isRestored is set when the cluster is restored: then the clients of an exact stream find nothing more.
	isRestored bool
}

// source is where a stream is received. Every message must arrive at each source with a different name.
type source struct {
	name string
	at   fsm.EntityRef
	rest time.Duration // between two requests for messages, on average
}

// sourceNames returns the different names of the sources.
func (s *stream) sourceNames() []string {
	var names []string
	seen := make(map[string]bool)
	for _, from := range s.from {
		if !seen[from.name] {
			seen[from.name] = true
			names = append(names, from.name)
		}
	}
	return names
}

// find notes what a client found to be wrong.
func (s *stream) find(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isRestored || !s.isExact {
		s.found = append(s.found, text)
	}
}

// hasDeadLetters reports whether receivers may dead-letter the messages of a stream.
func (s *stream) hasDeadLetters() bool {
	return s.redrives || len(s.from) > 1 && s.from[1].at.Sub == fsm.DeadLetterQueue && s.lives == nil
}

// expectation says whether a message must arrive at a source.
type expectation int

const (
	must expectation = iota
	may
	never
)

// sentMessage is what a sender knows of a message.
type sentMessage struct {
	id         string
	begun      time.Time
	ended      time.Time // when the sender knew the outcome; zero: never
	isAccepted bool
}
