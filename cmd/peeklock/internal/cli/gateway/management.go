package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// manageTimeMax limits one request to a management node.
const manageTimeMax = 30 * time.Second

// Management is the management node of an entity: it sends requests over one link and receives answers over
// another (docs/service-bus-protocol.md#the-management-node).
type Management struct {
	requests *amqp.Sender
	answers  *amqp.Receiver
	replyTo  string
	serial   int
	session  *string // session that is peeked or fetched from; nil: any
}

// WithSession adds the session to the body of a request.
func (n *Management) WithSession(body map[string]any) map[string]any {
	if n.session != nil {
		body["session-id"] = *n.session
	}
	return body
}

// OpenManagement opens the management node of an entity, with whose session WithSession completes requests; nil: any.
func (d *Session) OpenManagement(ctx context.Context, entity string, session *string) (*Management, error) {
	n := &Management{replyTo: "peeklock-cli-answers", session: session}
	var err error
	if n.requests, err = d.Session.NewSender(ctx, entity+"/$management", nil); err != nil {
		return nil, err
	}
	n.answers, err = d.Session.NewReceiver(ctx, entity+"/$management", &amqp.ReceiverOptions{
		TargetAddress: n.replyTo, Credit: 10,
	})
	return n, err
}

// Request performs one operation and returns the body of its answer, nil for "no content".
func (n *Management) Request(ctx context.Context, operation string, body map[string]any) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, manageTimeMax)
	defer cancel()
	n.serial++
	request := &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: fmt.Sprint(n.serial), ReplyTo: &n.replyTo},
		ApplicationProperties: map[string]any{"operation": operation, "com.microsoft:server-timeout": uint32(manageTimeMax / time.Millisecond)},
		Value:                 body,
	}
	if err := n.requests.Send(ctx, request, nil); err != nil {
		return nil, PlainError(err)
	}
	answer, err := n.answers.Receive(ctx, nil)
	if err != nil {
		return nil, PlainError(err)
	}
	if err := n.answers.AcceptMessage(ctx, answer); err != nil {
		return nil, PlainError(err)
	}
	status, _ := answer.ApplicationProperties["statusCode"].(int32)
	if status < 200 || status > 299 {
		return nil, &answerError{
			status: status,
			text:   fmt.Sprintf("%v (%v)", answer.ApplicationProperties["statusDescription"], answer.ApplicationProperties["errorCondition"]),
		}
	}
	content, _ := answer.Value.(map[string]any)
	return content, nil
}

// answerError is the refusal of a request by a management node.
type answerError struct {
	status int32
	text   string
}

// Error returns the text of the member.
func (e *answerError) Error() string { return e.text }

// RequestChange is like request, for operations that change something: the outcome of a failure is unknown, unless
// the node refused with a status other than a timeout.
func (n *Management) RequestChange(ctx context.Context, operation string, body map[string]any) (map[string]any, error) {
	content, err := n.Request(ctx, operation, body)
	var answer *answerError
	switch {
	case err == nil:
		return content, nil
	case errors.As(err, &answer) && answer.status != http.StatusRequestTimeout:
		return nil, err
	}
	return nil, cli.Unknown(fmt.Errorf("it may or may not have been done: %w", err))
}
