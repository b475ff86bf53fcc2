package messages

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// deferredCountMax limits the sequence numbers on one command line.
const deferredCountMax = 1000

// The receiver settle modes of receive-by-sequence-number (docs/service-bus-protocol.md#receive-by-sequence-number).
const (
	settleModeFirst  uint32 = 0
	settleModeSecond uint32 = 1
)

// deferredMessage is a deferred message, with its lock token unless it was received and deleted.
type deferredMessage struct {
	message *amqp.Message
	token   amqp.UUID
}

// receiveDeferred receives one deferred message by its sequence number.
func receiveDeferred(ctx context.Context, n *gateway.Management, number int64, receiveAndDelete bool) (deferredMessage, error) {
	mode := settleModeSecond
	if receiveAndDelete {
		mode = settleModeFirst
	}
	content, err := n.RequestChange(ctx, "com.microsoft:receive-by-sequence-number", n.WithSession(map[string]any{
		"sequence-numbers": []int64{number}, "receiver-settle-mode": mode,
	}))
	if err != nil {
		return deferredMessage{}, err
	}
	list, _ := content["messages"].([]any)
	if len(list) != 1 {
		return deferredMessage{}, fmt.Errorf("no deferred message has the number %d", number)
	}
	fields, _ := list[0].(map[string]any)
	encoded, _ := fields["message"].([]byte)
	token, _ := fields["lock-token"].(amqp.UUID)
	f := deferredMessage{message: new(amqp.Message), token: token}
	if err := f.message.UnmarshalBinary(encoded); err != nil {
		return deferredMessage{}, fmt.Errorf("decode a message: %w", err)
	}
	return f, nil
}

// settle settles a fetched message as requested.
func settle(ctx context.Context, n *gateway.Management, f deferredMessage, o *receiveOptions) error {
	request := map[string]any{"lock-tokens": []amqp.UUID{f.token}}
	switch {
	case o.abandon:
		request["disposition-status"] = "abandoned"
	case o.deferred:
		request["disposition-status"] = "defered" // the spelling of the service
	case o.deadLetter:
		request["disposition-status"] = "suspended"
		request["deadletter-reason"], request["deadletter-description"] = o.reason, o.description
	default:
		request["disposition-status"] = "completed"
	}
	_, err := n.RequestChange(ctx, "com.microsoft:update-disposition", request)
	return err
}

// receiveBySequence receives and settles deferred messages one after another in the requested order, and stops at
// the first that does not exist.
func (o *receiveOptions) receiveBySequence(ctx context.Context, out *output.Output, node *gateway.Management) (int, error) {
	if err := out.Note("%s", lineHeader); err != nil {
		return 0, err
	}
	for got, number := range o.sequences {
		f, err := receiveDeferred(ctx, node, number, o.receiveAndDelete)
		if err != nil {
			return got, fmt.Errorf("receive message %d: %w", number, err)
		}
		shown := NewShownMessage(f.message)
		shown.Settled = o.verb()
		if err := out.Item(shown, shown.tableLine()); err != nil {
			return got, err
		}
		if o.receiveAndDelete {
			continue
		}
		if err := settle(ctx, node, f, o); err != nil {
			return got, fmt.Errorf("%s message %d: %w", o.verb(), number, err)
		}
	}
	return len(o.sequences), nil
}
