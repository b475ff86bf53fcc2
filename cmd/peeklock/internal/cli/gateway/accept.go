package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/go-amqp"
)

// Properties of an attach that concern sessions (docs/service-bus-protocol.md#accepting-a-session).
const (
	sessionFilter   = "com.microsoft:session-filter"
	acceptTimeout   = "com.microsoft:timeout"
	acceptCondition = "com.microsoft:timeout" // no session became available in time
)

// acceptTimeMax is how long an answer may take in addition to the wait time.
const acceptTimeMax = 10 * time.Second

// AcceptSession attaches a receiver that holds the named session, or the next available one if session is nil. It
// returns ErrNoMessage if none becomes available in time. Closing the link releases the session.
func (d *Session) AcceptSession(ctx context.Context, source string, credit int32, receiveAndDelete bool, session *string, wait time.Duration) (*amqp.Receiver, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+acceptTimeMax)
	defer cancel()
	options := receiverOptions(credit, receiveAndDelete)
	var name any // a nil pointer in an interface would not be nil
	if session != nil {
		name = *session
	}
	options.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, 0, name)}
	options.Properties = map[string]any{acceptTimeout: uint32(max(wait.Milliseconds(), 1))}
	receiver, err := d.Session.NewReceiver(ctx, source, options)
	var answer *amqp.Error
	if errors.As(err, &answer) && answer.Condition == acceptCondition {
		return nil, ErrNoMessage
	}
	return receiver, err
}

// SessionOf returns the name of the session that a receiver holds.
func SessionOf(r *amqp.Receiver) string {
	name, _ := r.LinkSourceFilterValue(sessionFilter).(string)
	return name
}
