package filter

import (
	"errors"
	"fmt"
)

// Reasons why a filter cannot be evaluated; find them with errors.Is. Each of them makes the state
// machine dead-letter the message if the subscription says so.
var (
	// ErrUnknownProperty: the message has no system property of this name.
	ErrUnknownProperty = errors.New("no such system property")
	// ErrOperand: the operator does not accept a value of this type, as in 'a' * 2.
	ErrOperand = errors.New("wrong type of operand")
	// ErrDivision: an integer is divided by zero, or a quotient, timestamp or time span does not fit.
	ErrDivision = errors.New("division by zero or overflow")
	// ErrReadOnly: an action changes a system property that it cannot change.
	ErrReadOnly = errors.New("property cannot be changed")
	// ErrEscape: the ESCAPE is not one character, or the pattern ends in it.
	ErrEscape = errors.New("wrong escape character")
	// ErrTooLong: a computed string is longer than ComputedBytesMax.
	ErrTooLong = errors.New("computed string is too long")
	// ErrSteps: the evaluation exceeds its budget of steps (see the package comment).
	ErrSteps = errors.New("too much to evaluate")
	// ErrInvalid: a correlation filter or a set of parameters exceeds its limits.
	ErrInvalid = errors.New("invalid filter")
)

// SyntaxError is the reason why a text is not a filter or an action. Its text is meant for the
// author of the filter.
type SyntaxError struct {
	Position int    // of the first unexpected character, from 1
	Expected string // what the grammar expects there
	Found    string // what was found
}

// Error is one line.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("character %d: expected %s, found %s", e.Position, e.Expected, e.Found)
}

// EvalError is the reason why a filter or an action could not be evaluated for a message. All
// replicas make the same text of it.
type EvalError struct {
	Err      error  // one of the reasons above, or the error of a Writer
	Detail   string // names and types; no values, which may be secret
	Position int    // of the character concerned, from 1
}

// Error is one line.
func (e *EvalError) Error() string {
	return fmt.Sprintf("character %d: %v: %s", e.Position, e.Err, e.Detail)
}

// Unwrap returns the reason.
func (e *EvalError) Unwrap() error { return e.Err }
