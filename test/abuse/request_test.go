package abuse

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Requests without end to the nodes $cbs and $management.

const (
	requestNode   = "$cbs"
	requestPace   = 20 * time.Millisecond // between two bursts
	tokenBurst    = 5                     // put-token requests in one write
	manageBurst   = 2                     // management requests in one write: some have 64 KB, and encoding more would occupy the machine
	requestTokens = 16                    // tokens that an attacker of $cbs uses in turn
	lockTokens    = 4000                  // lock tokens of one request: almost what one frame holds
)

// attachNode attaches the link for requests to a node, handle 0, and the link for its responses, handle 1, and
// gives the latter credit unless responses are to pile up.
func attachNode(c *rawamqp.Conn, node string, credit uint32) error {
	responses := rawamqp.Receiver(1, node)
	responses.Target.Address = "responses"
	if err := errors.Join(c.Attach(rawamqp.Sender(0, node)), c.Attach(responses)); err != nil {
		return err
	}
	return c.Send(0, rawamqp.Credit(1, credit))
}

// nodeRequest is an encoded request to a node.
func nodeRequest(arguments wire.Map, body any) []byte {
	b := wire.AppendProperties(nil, &wire.Properties{MessageID: "request", ReplyTo: "responses"})
	b = wire.AppendMap(wire.AppendSectionDescriptor(b, wire.SectionApplicationProperties), arguments)
	return wire.AppendValue(wire.AppendSectionDescriptor(b, wire.SectionValue), body)
}

// floodNode sends bursts of requests in turn. With credit it waits for the responses to a burst before the next
// one, as fast clients do; without, it goes on whatever the member says.
func (at *target) floodNode(ctx context.Context, c *rawamqp.Conn, node string, credit bool, burst int, requests [][]byte) error {
	granted := uint32(0)
	if credit {
		granted = 1<<31 - 1
	}
	if err := attachNode(c, node, granted); err != nil {
		return err
	}
	if !credit || at.sink {
		go discard(c)
	}
	next := uint32(0)
	return every(ctx, requestPace, func() error {
		var b []byte
		for range burst {
			b = appendTransfers(b, 0, next, requests[int(next)%len(requests)])
			next++
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		at.countHit()
		if !credit || at.sink {
			return nil
		}
		return readResponses(c, burst)
	})
}

// appendTransfers appends a delivery, in as many frames as it needs.
func appendTransfers(b []byte, handle, id uint32, payload []byte) []byte {
	for more := true; more; {
		part := payload[:min(len(payload), endlessFrame)]
		payload = payload[len(part):]
		more = len(payload) > 0
		b = wire.AppendFrame(b, wire.FrameAMQP, 0, &wire.Transfer{
			Handle: handle, DeliveryID: ptr(id), DeliveryTag: []byte{byte(id >> 8), byte(id)}, MessageFormat: new(uint32), More: more, Payload: part,
		})
	}
	return b
}

// readResponses reads whole responses and settles them.
func readResponses(c *rawamqp.Conn, n int) error {
	for n > 0 {
		t, err := rawamqp.Expect[*wire.Transfer](c)
		if err != nil {
			return err
		}
		if t.More {
			continue
		}
		n--
		if t.DeliveryID == nil || t.Settled != nil && *t.Settled {
			continue
		}
		settle := &wire.Disposition{Role: wire.RoleReceiver, First: *t.DeliveryID, Settled: true, State: &wire.Accepted{}}
		if err := c.Send(0, settle); err != nil {
			return err
		}
	}
	return nil
}

// putTokens floods $cbs with tokens before anything else: valid ones for many audiences, wrong ones, and ones
// that cannot be read. Half of the attackers never read a response.
func putTokens(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(12, 48), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := errors.Join(c.Anonymous(), c.Open(openFrame())); err != nil {
			return err
		}
		var requests [][]byte
		for n := range requestTokens {
			audience := fmt.Sprintf("sb://%s/%s-%d", ownHost, openQueue, n)
			token := auth.Sign(audience, sendKey, ownSecret, time.Now().Add(time.Hour))
			switch n % 4 {
			case 1:
				token = auth.Sign(audience, sendKey, fmt.Sprintf("guess %d of %d", n, i), time.Now().Add(time.Hour))
			case 2:
				token = "SharedAccessSignature " + string(make([]byte, 1000))
			}
			requests = append(requests, nodeRequest(wire.Map{
				{Key: "operation", Value: "put-token"}, {Key: "type", Value: auth.KindSAS}, {Key: "name", Value: audience},
			}, token))
		}
		return at.floodNode(ctx, c, requestNode, i%2 == 0, tokenBurst, requests)
	})
}

// manageFlood floods $management of a queue full of messages: peeks of 250 messages, settlements
// and renewals of thousands of locks that nobody has, and operations that do not exist.
func manageFlood(ctx context.Context, at *target) error {
	operation := func(name string, body any) []byte {
		return nodeRequest(wire.Map{{Key: "operation", Value: "com.microsoft:" + name}}, body)
	}
	tokens := wire.Array{Values: make([]wire.UUID, lockTokens)}
	requests := [][]byte{
		operation("peek-message", wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(250)}}),
		operation("renew-lock", wire.Map{{Key: "lock-tokens", Value: tokens}}),
		operation("update-disposition", wire.Map{{Key: "disposition-status", Value: "completed"}, {Key: "lock-tokens", Value: tokens}}),
		operation("receive-by-sequence-number", wire.Map{
			{Key: "sequence-numbers", Value: wire.Array{Values: make([]int64, lockTokens)}}, {Key: "receiver-settle-mode", Value: uint32(1)},
		}),
		operation("no-such-operation", wire.Map{}),
	}
	return at.swarm(ctx, at.attackers(12, 48), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		return at.floodNode(ctx, c, unreadQueue+"/$management", i%2 == 0, manageBurst, requests)
	})
}
