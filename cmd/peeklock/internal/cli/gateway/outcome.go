package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

// IsRefused reports whether err is the member's answer to one message. After any other error (a detached link, a
// lost connection, a timeout) the outcome is unknown.
func IsRefused(err error) bool {
	var answer *amqp.Error
	var link *amqp.LinkError
	var session *amqp.SessionError
	var conn *amqp.ConnError
	return errors.As(err, &answer) && !errors.As(err, &link) && !errors.As(err, &session) && !errors.As(err, &conn)
}

// PlainError reduces an error of go-amqp to the broker's answer.
func PlainError(err error) error {
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		err = link.RemoteErr
	}
	var conn *amqp.ConnError
	if errors.As(err, &conn) && conn.RemoteErr != nil {
		err = conn.RemoteErr
	}
	var answer *amqp.Error
	if errors.As(err, &answer) {
		return fmt.Errorf("%s (%s)", answer.Description, answer.Condition)
	}
	return err
}

// ErrNoMessage ends a receive that timed out; it is not printed.
var ErrNoMessage = errors.New("no message came")

// rejection is the refusal of a message by the broker.
type rejection struct{ error }

// Unwrap lets errors.As see the error of the broker.
func (r rejection) Unwrap() error { return r.error }

// IsRejection reports whether the broker refused a message.
func IsRejection(err error) bool {
	var r rejection
	return errors.As(err, &r)
}

// ClassifyOutcome returns nil if a delivery state means that the message was accepted, else the refusal.
func ClassifyOutcome(state amqp.DeliveryState) error {
	switch state := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateRejected:
		if state.Error != nil {
			return rejection{state.Error}
		}
	}
	return rejection{&amqp.Error{Condition: "peeklock:not-accepted", Description: fmt.Sprintf("the message was not accepted (%T)", state)}}
}

// Next waits for a message and returns ErrNoMessage if none arrives in time.
func Next(ctx context.Context, receiver *amqp.Receiver, wait time.Duration) (*amqp.Message, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	message, err := receiver.Receive(waiting, nil)
	switch {
	case err == nil:
		return message, nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil, ErrNoMessage
	}
	return nil, PlainError(err)
}
