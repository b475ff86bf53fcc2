package message

import (
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
)

// The limits of a message, in bytes unless the name says otherwise.
const (
	BytesMax           = 16 << 20 // largest message accepted, whatever its queue allows
	NameCharactersMax  = 128      // message-id, group-id and partition keys
	propertiesBytesMax = 64 << 10 // annotations kept, properties and application properties together
	propertyBytesMax   = 32 << 10 // one property with its key
)

// Error is the reason why a message or its properties are refused. Its text is a clause without advice that
// can be shown to the client.
type Error struct {
	Condition wire.Symbol
	Text      string
}

func (e *Error) Error() string { return string(e.Condition) + ": " + e.Text }

// NewError returns a new *Error.
func NewError(condition wire.Symbol, format string, args ...any) error {
	return &Error{condition, fmt.Sprintf(format, args...)}
}

// sectionError reports that the bytes of a section are not AMQP.
func sectionError(what fmt.Stringer, err error) error {
	return NewError(wire.ConditionDecodeError, "%s: %s", what, err)
}
