package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

// deferredCountMax bounds the numbers on one command line.
const deferredCountMax = 1000

// The receiver settle modes of receive-by-sequence-number (docs/service-bus-protocol.md#receive-by-sequence-number).
const (
	fetchTakes uint32 = 0
	fetchLocks uint32 = 1
)

// fetched is a deferred message, with the token of its lock unless it was taken.
type fetched struct {
	message *amqp.Message
	token   amqp.UUID
}

// fetch receives one deferred message by its number.
func (n *node) fetch(ctx context.Context, number int64, takes bool) (fetched, error) {
	mode := fetchLocks
	if takes {
		mode = fetchTakes
	}
	content, err := n.change(ctx, "com.microsoft:receive-by-sequence-number", n.of(map[string]any{
		"sequence-numbers": []int64{number}, "receiver-settle-mode": mode,
	}))
	if err != nil {
		return fetched{}, err
	}
	list, _ := content["messages"].([]any)
	if len(list) != 1 {
		return fetched{}, fmt.Errorf("no deferred message has the number %d", number)
	}
	fields, _ := list[0].(map[string]any)
	encoded, _ := fields["message"].([]byte)
	token, _ := fields["lock-token"].(amqp.UUID)
	f := fetched{message: new(amqp.Message), token: token}
	if err := f.message.UnmarshalBinary(encoded); err != nil {
		return fetched{}, fmt.Errorf("decode a message: %w", err)
	}
	return f, nil
}

// settle ends the lock of a fetched message in the way that was asked for.
func (n *node) settle(ctx context.Context, f fetched, o *receiveOptions) error {
	request := map[string]any{"lock-tokens": []amqp.UUID{f.token}}
	switch {
	case o.abandon:
		request["disposition-status"] = "abandoned"
	case o.deferred:
		request["disposition-status"] = "defered" // as the service spells it
	case o.deadLetter:
		request["disposition-status"] = "suspended"
		request["deadletter-reason"], request["deadletter-description"] = o.reason, o.description
	default:
		request["disposition-status"] = "completed"
	}
	_, err := n.change(ctx, "com.microsoft:update-disposition", request)
	return err
}

// byNumber receives and settles deferred messages, one after the other in the order
// asked for, and stops at the first that is not there.
func (o *receiveOptions) byNumber(ctx context.Context, out *output, node *node) (int, error) {
	if err := out.note("%s", lineHeader); err != nil {
		return 0, err
	}
	for got, number := range o.sequences {
		f, err := node.fetch(ctx, number, o.takes)
		if err != nil {
			return got, fmt.Errorf("receive message %d: %w", number, err)
		}
		shown := show(f.message)
		shown.Settled = o.verb()
		if err := out.item(shown, shown.line()); err != nil {
			return got, err
		}
		if o.takes {
			continue
		}
		if err := node.settle(ctx, f, o); err != nil {
			return got, fmt.Errorf("%s message %d: %w", o.verb(), number, err)
		}
	}
	return len(o.sequences), nil
}
