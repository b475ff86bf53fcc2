package filter

import (
	"errors"
	"fmt"
)

// The reasons why a filter cannot be evaluated; find them with errors.Is. Each makes the
// service dead-letter the message where the subscription says so.
var (
	// ErrUnknownProperty is a sys. name that the message does not know.
	ErrUnknownProperty = errors.New("no such system property")
	// ErrOperand is an operator with a value that it is not for, as in 'a' * 2.
	ErrOperand = errors.New("wrong type of operand")
	// ErrDivision is an integer divided by zero, or the one quotient that does not fit.
	ErrDivision = errors.New("division by zero or overflow")
	// ErrEscape is an ESCAPE that is not one character, or a pattern that ends in it.
	ErrEscape = errors.New("wrong escape character")
	// ErrTooLong is a computed string over ComputedBytesMax.
	ErrTooLong = errors.New("computed string is too long")
	// ErrSteps is an evaluation that takes more steps than it may (see the package comment).
	ErrSteps = errors.New("too much to evaluate")
	// ErrInvalid is a correlation filter or a set of parameters over its limits.
	ErrInvalid = errors.New("invalid filter")
)

// SyntaxError says why a text is not a filter or an action. Its text is fit for the person
// who wrote the filter.
type SyntaxError struct {
	Position int    // of the character where it went wrong, from 1
	Expected string // what could have stood there
	Found    string // what stood there
}

// Error is one line.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("character %d: expected %s, found %s", e.Position, e.Expected, e.Found)
}

// EvalError says why a filter or an action could not be evaluated with one message. All
// replicas make the same text of it.
type EvalError struct {
	Err      error  // one of the reasons, or what a Writer said
	Detail   string // names and types; no values, which may be secret
	Position int    // of the character in the text that is concerned, from 1
}

// Error is one line.
func (e *EvalError) Error() string {
	return fmt.Sprintf("character %d: %v: %s", e.Position, e.Err, e.Detail)
}

// Unwrap gives the reason.
func (e *EvalError) Unwrap() error { return e.Err }
