package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// Header makes a command exactly-once. The router of a member numbers its requests to a partition.
// The state machine remembers the answer to every (Incarnation, Receiver, Serial) until a later
// command of the receiver has a Low above that serial. A repeated command is answered from memory
// and not performed again (Raft dissertation, section 6.3). Incarnation 0 is the leader itself
// (pulses): its answers are not remembered.
type Header struct {
	Incarnation uint64 // of the requesting member, drawn at its start; 0: none
	Receiver    uint64 // 0 for ordinary requests, else one receiver, which has at most one request in flight
	Serial      uint64 // rises by one per receiver, from 1
	Low         uint64 // every Serial below it has been answered and need not be remembered
}

// Command is implemented by the command structs of this package, as values.
type Command interface {
	// kind returns the number of the command in the log format.
	kind() Kind
	// Check validates the limits that do not depend on state, see Check.
	Check() Code
	// encode appends the payload, what the method fields lists. The codec is a value because it would
	// escape to the heap as a pointer.
	encode(x fields.Codec) fields.Codec
}

// Check validates a command against the limits that do not depend on state: OK, InvalidArgument or
// MessageTooLarge. Callers that build a command check it before they encode it; the state machines
// check again.
func Check(c Command) Code { return c.Check() }

// CodeIf returns OK or InvalidArgument.
func CodeIf(valid bool) Code {
	if valid {
		return OK
	}
	return InvalidArgument
}

// Within reports whether n is between 1 and limit.
func Within(n, limit int) bool { return n > 0 && n <= limit }
