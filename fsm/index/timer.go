package index

import (
	"math"

	"github.com/peeklock/peeklock/fsm"
)

// Timer is a time at which something has to be checked. It is stale when its subject was removed or
// moved: stale timers are not searched for and removed, but skipped when they are due. All timers
// but those of locks are lower bounds.
type Timer struct {
	At     fsm.Instant        // on the timeline of the kind
	Number fsm.SequenceNumber // of the message, the first one of the chunk, the slot of the session, or LastNumber
	Epoch  uint32             // of the lock
	Kind   TimerKind
}

// TimerKind is the subject of a timer.
type TimerKind uint8

// Kinds of timers. The index checks those of its messages, its [Owner] the others.
const (
	ChunkTimer   TimerKind = 0 // messages of a chunk that are not locked
	LockTimer    TimerKind = 1 // the end of a lock
	SweepTimer   TimerKind = 2 // remembered ids of messages that have expired
	IdleTimer    TimerKind = 3 // the entity may be idle
	SessionTimer TimerKind = 4 // the end of a session lock
)

// timeline returns the time on which timers of this kind run.
func (k TimerKind) timeline() fsm.Timeline {
	switch k {
	case LockTimer, IdleTimer, SessionTimer:
		return fsm.ServingTime
	case ChunkTimer, SweepTimer:
	}
	return fsm.WallTime
}

// LastNumber orders timers of the whole entity after those of its messages.
const LastNumber fsm.SequenceNumber = math.MaxUint64

// Before implements [heap.Ordered].
func (a Timer) Before(b Timer) bool {
	if a.At != b.At {
		return a.At < b.At
	}
	if a.Number != b.Number {
		return a.Number < b.Number
	}
	if a.Kind != b.Kind {
		return a.Kind < b.Kind
	}
	return a.Epoch < b.Epoch
}

// OnWall returns the wall time that corresponds to the timer.
func (a Timer) OnWall(times fsm.Times) fsm.Instant {
	if a.Kind.timeline() == fsm.ServingTime {
		return times.OnWall(a.At)
	}
	return a.At
}

// Owner is the entity to which an index belongs.
type Owner interface {
	// IsCurrent reports whether a timer that the owner added is not stale.
	IsCurrent(a Timer) bool
}
