package load

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// stream is a way of messages through entities of the cluster, and how its clients use it.
type stream struct {
	*judge.Stream

	next atomic.Int64
	work []func(*client) // clients besides senders and receivers, one each; they end with sending

	relay     *judge.Source // messages are moved from here to all sources by transactions; nil: none are
	rest      time.Duration // between two requests for messages of a main queue, on average
	isAMQP    bool          // its clients use the gateways, the others the routers of members
	resends   bool          // the sender sends messages again whose fate it does not know, and some that were accepted
	immediate bool          // no message is scheduled
	schedules bool          // all messages are, and some are cancelled
	redrives  bool          // dead letters are moved back
	isBacklog bool          // it has no sender, and is received when sending ends

	// prepare completes the message with a number, before it is sent; nil: nothing is added.
	prepare func(c *client, m *fsm.Message, number int64)
	// buries says which messages the receivers dead-letter and never complete; nil: none.
	buries func(id string) bool

	mu       sync.Mutex
	deferred map[fsm.SequenceNumber]bool // messages that may be deferred
}

// hasDeadLetters reports whether receivers may dead-letter the messages of a stream.
func (s *stream) hasDeadLetters() bool {
	return s.redrives || len(s.From) > 1 && s.From[1].At.Sub == fsm.DeadLetterQueue && s.Lives == nil
}

// noteDeferred notes that a message may be deferred, or is not any more.
func (s *stream) noteDeferred(sequence fsm.SequenceNumber, maybe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, was := s.deferred[sequence]; maybe || was { // a restored cluster may have it deferred again
		s.deferred[sequence] = maybe
	}
}

// mayBeDeferred returns the messages that may be deferred.
func (s *stream) mayBeDeferred() (sequences []fsm.SequenceNumber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sequence, maybe := range s.deferred {
		if maybe {
			sequences = append(sequences, sequence)
		}
	}
	return sequences
}

// restored is called when the cluster is lost, before another one is started from its copy: there, every message may be
// deferred that ever was.
func (s *stream) restored() {
	s.Restored()
	s.mu.Lock()
	defer s.mu.Unlock()
	for sequence := range s.deferred {
		s.deferred[sequence] = true
	}
}
