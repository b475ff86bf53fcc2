package abuse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Requests whose answers are long.

const (
	sessionQueue = "abuse-sessions"
	ruleTopic    = "abuse-rules"
	longRules    = 100     // of the topic: a page of them has a megabyte
	stateBytes   = 200_000 // of the state of a session
	statesMax    = 200     // sessions of one connection, each with a state
)

// readable creates what readMuch asks for.
func readable(a *abuseRun) {
	createOwn("queues/"+sessionQueue, harness.Fields{"requiresSession": true, "lockDuration": "5m"})(a)
	filledQueue(unreadQueue, unreadBytes)(a)
	a.createTopic(ruleTopic, longRules, longRule)
}

// longRule is a correlation filter of almost as many bytes as it may have.
func longRule(i int) harness.Rule {
	conditions := harness.Fields{}
	for j := range 64 {
		conditions[fmt.Sprintf("property-%d", j)] = fmt.Sprintf("%0200d", i)
	}
	return harness.Rule{Conditions: conditions}
}

// sessionReceiver returns the attach of a link that accepts a session.
func sessionReceiver(handle uint32, queue, session string) *wire.Attach {
	a := rawamqp.Receiver(handle, queue)
	a.Name = "session-" + session
	a.Source.Filter = wire.Map{{Key: wire.Symbol("com.microsoft:session-filter"), Value: session}}
	return a
}

func operation(name string, body wire.Map) []byte {
	return nodeRequest(wire.Map{{Key: "operation", Value: "com.microsoft:" + name}}, body)
}

// readMuch asks for long answers, by the hundred on a connection, and reads those of half of the connections.
func readMuch(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(12, 60), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		switch i % 3 {
		case 0:
			all := wire.Map{{Key: "top", Value: int32(1000)}, {Key: "skip", Value: int32(0)}}
			return at.floodNode(ctx, c, subscriptionOf(ruleTopic)+"/$management", i%2 == 0, manageBurst, [][]byte{operation("enumerate-rules", all)})
		case 1:
			numbers := make([]int64, 100)
			for n := range numbers {
				numbers[n] = int64(n + 1)
			}
			return at.floodNode(ctx, c, unreadQueue+"/$management", i%2 == 0, manageBurst, [][]byte{
				operation("peek-message", wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(250)}}),
				operation("receive-by-sequence-number", wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: numbers}}, {Key: "receiver-settle-mode", Value: uint32(1)}}),
			})
		}
		session := fmt.Sprintf("s%d", i)
		if err := c.Attach(sessionReceiver(2, sessionQueue, session)); err != nil {
			return err
		}
		return at.floodNode(ctx, c, sessionQueue+"/$management", i%2 == 0, manageBurst, [][]byte{
			operation("set-session-state", wire.Map{{Key: "session-id", Value: session}, {Key: "session-state", Value: make([]byte, stateBytes)}}),
			operation("get-session-state", wire.Map{{Key: "session-id", Value: session}}),
			operation("get-session-state", wire.Map{{Key: "session-id", Value: session}}),
			operation("get-message-sessions", wire.Map{{Key: "top", Value: int32(1000)}, {Key: "skip", Value: int32(0)}}),
		})
	})
}

// storeStates sets states of ever more sessions, with a key that may receive only.
func storeStates(ctx context.Context, at *target) error {
	state := make([]byte, stateBytes)
	return at.swarm(ctx, at.attackers(6, 24), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		if err := attachNode(c, sessionQueue+"/$management", 1<<31-1); err != nil {
			return err
		}
		if at.sink {
			go discard(c)
		}
		n := uint32(0)
		return every(ctx, requestPace, func() error {
			session := fmt.Sprintf("%s-%d-%p-%d", strings.Repeat("s", 60), i, c, n)
			if n++; n > statesMax {
				return nil
			}
			if err := c.Attach(sessionReceiver(1+n, sessionQueue, session)); err != nil {
				return err
			}
			request := operation("set-session-state", wire.Map{{Key: "session-id", Value: session}, {Key: "session-state", Value: state}})
			if _, err := c.Write(appendTransfers(nil, 0, n-1, request)); err != nil {
				return err
			}
			at.countHit()
			if at.sink {
				return nil
			}
			return errors.Join(readResponses(c, 1), c.Send(0, &wire.Detach{Handle: 1 + n, Closed: true}))
		})
	})
}
