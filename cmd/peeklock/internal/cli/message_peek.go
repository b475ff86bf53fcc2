package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/fsm/filter"
)

// peekOptions are the flags of message peek.
type peekOptions struct {
	subQueue
	count   int
	from    int64
	where   *filter.Expr
	session *string
}

func peek(i invocation, o *peekOptions) error {
	ctx, out, queue := i.ctx, i.out, i.args[0]
	if o.count < 0 || o.from < 0 {
		return Usagef("--count and --from are 0 or more")
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.session != nil && (o.deadLetters || o.transfer) {
		return Usagef("dead letters have no sessions: use --where \"sys.SessionId = '...'\"")
	}
	d, err := i.client.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	address := o.address(queue)
	node, err := d.openManagement(ctx, address)
	if err != nil {
		return fmt.Errorf("peek at %s: %w", queue, PlainError(err))
	}
	node.session = o.session
	if err := out.Note("%s", lineHeader); err != nil {
		return err
	}
	seen := 0
	for from := o.from; o.count == 0 || seen < o.count; {
		want := peekPage
		if o.count > 0 && o.where == nil {
			want = min(want, o.count-seen)
		}
		page, err := node.peek(ctx, from, want)
		if err != nil {
			return fmt.Errorf("peek at %s: %w", queue, err)
		}
		for _, m := range page {
			shown := NewShownMessage(m)
			shown.State = stateName(m.Annotations[noteState])
			if shown.Sequence < from {
				return fmt.Errorf("peek at %s: the member returned messages that it had returned before", queue)
			}
			from = shown.Sequence + 1
			wanted, err := matchesWhere(o.where, m, shown)
			if err != nil {
				return err
			}
			if !wanted || o.count > 0 && seen == o.count {
				continue
			}
			if err := out.item(shown, shown.tableLine()); err != nil {
				return err
			}
			seen++
		}
		if len(page) == 0 {
			break
		}
	}
	return out.Note("%d seen in %s", seen, queue)
}

// managementNode is the management node of an entity: it sends requests over one link and receives answers over
// another (docs/service-bus-protocol.md#the-management-node).
type managementNode struct {
	requests *amqp.Sender
	answers  *amqp.Receiver
	replyTo  string
	serial   int
	session  *string // session that is peeked or fetched from; nil: any
}

// withSession adds the session to the body of a request.
func (n *managementNode) withSession(body map[string]any) map[string]any {
	if n.session != nil {
		body["session-id"] = *n.session
	}
	return body
}

func (d *AMQPSession) openManagement(ctx context.Context, entity string) (*managementNode, error) {
	n := &managementNode{replyTo: "peeklock-cli-answers"}
	var err error
	if n.requests, err = d.Session.NewSender(ctx, entity+"/$management", nil); err != nil {
		return nil, err
	}
	n.answers, err = d.Session.NewReceiver(ctx, entity+"/$management", &amqp.ReceiverOptions{
		TargetAddress: n.replyTo, Credit: 10,
	})
	return n, err
}

// request performs one operation and returns the body of its answer, nil for "no content".
func (n *managementNode) request(ctx context.Context, operation string, body map[string]any) (map[string]any, error) {
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

// requestChange is like request, for operations that change something: the outcome of a failure is unknown, unless
// the node refused with a status other than a timeout.
func (n *managementNode) requestChange(ctx context.Context, operation string, body map[string]any) (map[string]any, error) {
	content, err := n.request(ctx, operation, body)
	var answer *answerError
	switch {
	case err == nil:
		return content, nil
	case errors.As(err, &answer) && answer.status != http.StatusRequestTimeout:
		return nil, err
	}
	return nil, unknownError{fmt.Errorf("it may or may not have been done: %w", err)}
}

// peek reads up to count messages from a sequence number on. It returns fewer when the answer is full, and none at
// the end.
func (n *managementNode) peek(ctx context.Context, from int64, count int) ([]*amqp.Message, error) {
	content, err := n.request(ctx, "com.microsoft:peek-message", n.withSession(map[string]any{
		"from-sequence-number": from, "message-count": int32(count),
	}))
	if err != nil {
		return nil, err
	}
	list, _ := content["messages"].([]any)
	page := make([]*amqp.Message, 0, len(list))
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		encoded, _ := fields["message"].([]byte)
		m := new(amqp.Message)
		if err := m.UnmarshalBinary(encoded); err != nil {
			return nil, fmt.Errorf("decode a message: %w", err)
		}
		page = append(page, m)
	}
	return page, nil
}
