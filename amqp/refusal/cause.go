package refusal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
)

// Retry states whether the same request can succeed later (docs/requirements.md#t1).
type Retry uint8

// The values of Retry.
const (
	RetryNever       Retry = iota // not unless the request changes
	RetryAfterChange              // after the client follows the advice in the text
	RetryLater                    // without a change
)

// Advice returns the sentence that advises clients.
func (r Retry) Advice() string {
	switch r {
	case RetryLater:
		return "A retry may help."
	case RetryAfterChange:
		return "A retry helps only after that."
	case RetryNever:
	}
	return "A retry will not help."
}

// Cause is the reason why a request is refused, in AMQP terms. The zero value refuses nothing: its condition is empty.
type Cause struct {
	Condition wire.Symbol
	Text      string // whole sentences: the error, and the advice
	Retry     Retry
}

// New returns a refusal that a retry does not change. The text is whole sentences, as that of AfterChange and Later.
func New(condition wire.Symbol, format string, args ...any) Cause {
	return Cause{Condition: condition, Text: fmt.Sprintf(format, args...)}
}

// AfterChange returns a refusal that a retry changes once the client has followed the advice in the text.
func AfterChange(condition wire.Symbol, format string, args ...any) Cause {
	return Cause{condition, fmt.Sprintf(format, args...), RetryAfterChange}
}

// Later returns a refusal that a retry may change.
func Later(condition wire.Symbol, format string, args ...any) Cause {
	return Cause{condition, fmt.Sprintf(format, args...), RetryLater}
}

// Of converts an error of the message parser about client input to a refusal. The error is a clause; Of extends it
// to a sentence with advice. what names what cannot be taken, and begins that sentence.
func Of(what string, err error) Cause {
	r := Cause{Condition: wire.ConditionDecodeError, Text: err.Error()}
	var m *message.Error
	if errors.As(err, &m) {
		r.Condition, r.Text = m.Condition, m.Text
	}
	r.Text = what + " cannot be taken: " + r.Text + ". Correct it and send it again."
	return r
}

// NewTrackingID returns a GUID, as in the texts of the cloud
// (docs/service-bus-protocol.md#error-descriptions).
func NewTrackingID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64())  //nolint:gosec // an id to search logs by, not a secret
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // as above
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80   // version 4 (RFC 9562, 5.4)
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// ForSettlement returns the refusal of a settlement on a link. The Go client retries after conditions that it
// considers temporary, finds that the delivery was answered once, and reports success. Therefore an
// unconfirmed settlement is never refused with a condition that requests a retry, or with one that this client
// does not know as final. Clients are prepared for lock lost (docs/requirements.md#t13), and a client that
// asks again gets the answer that applies at that time.
func (r Cause) ForSettlement() Cause {
	switch r.Condition {
	case wire.ConditionMessageLockLost, wire.ConditionSessionLockLost, wire.ConditionNotFound, wire.ConditionEntityDisabled, wire.ConditionNotAllowed,
		wire.ConditionUnauthorizedAccess, wire.ConditionMessageSizeExceeded, wire.ConditionResourceLimitExceeded:
		return r
	}
	if r.Retry == RetryLater {
		return Later(wire.ConditionMessageLockLost, "The settlement is not confirmed, and the message may come again. %s", r.Text)
	}
	r.Condition = wire.ConditionNotAllowed
	return r
}

// ForReattach returns the refusal that ends a link which the client should attach again; the new attach
// reports the reason. After another condition the Go client would keep the ended link of a sender for ever,
// and every client would after server-busy.
func (r Cause) ForReattach() Cause {
	return AfterChange(wire.ConditionDetachForced, "%s Attach the link again.", r.Text)
}
