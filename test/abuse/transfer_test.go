package abuse

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Deliveries and transactions that never end, and malformed frames.

const (
	endlessQueue    = "abuse-endless"
	endlessFrame    = 60_000               // payload of one transfer frame, in bytes
	endlessDelivery = 4                    // frames of one delivery: almost the largest message of a queue
	endlessLinks    = 130                  // of one attacker: 31 MB in all
	endlessPace     = 5 * time.Millisecond // between two frames of one attacker: 12 MB/s
)

// endlessTransfers sends deliveries of many frames without the last one, on many
// links of many connections.
func endlessTransfers(ctx context.Context, at *target) error {
	payload := make([]byte, endlessFrame)
	return at.swarm(ctx, at.attackers(40, 80), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := signIn(c, sendKey); err != nil {
			return err
		}
		for handle := range uint32(endlessLinks) {
			if err := c.Attach(rawamqp.Sender(handle, endlessQueue)); err != nil {
				return err
			}
		}
		go discard(c)
		n := uint32(0)
		return every(ctx, endlessPace, func() error {
			if n == endlessLinks*endlessDelivery {
				return nil // all deliveries are begun
			}
			at.countHit()
			handle := n / endlessDelivery
			t := &wire.Transfer{Handle: handle, More: true, Payload: payload}
			if n%endlessDelivery == 0 {
				t.DeliveryID, t.DeliveryTag, t.MessageFormat = ptr(handle), []byte{byte(handle)}, new(uint32)
			}
			n++
			return c.Send(0, t)
		})
	})
}

// emptyDeclares opens as many transactions as a connection may have, on each of many connections, and does nothing in them.
func emptyDeclares(ctx context.Context, at *target) error {
	const controller, openMax, pace = 0, 1000, 10 * time.Millisecond
	command := rawamqp.Message(nil)
	return at.swarm(ctx, at.attackers(30, 1000), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := signIn(c, sendKey); err != nil {
			return err
		}
		if err := c.Attach(rawamqp.Controller(controller)); err != nil {
			return err
		}
		if at.sink {
			go discard(c)
		}
		opened := 0
		return every(ctx, pace, func() error {
			if opened == openMax {
				return nil
			}
			opened++
			at.countHit()
			if at.sink {
				return c.Send(0, &wire.Transfer{Handle: controller, DeliveryID: new(uint32), DeliveryTag: []byte{1}, MessageFormat: new(uint32), Payload: command})
			}
			_, err := c.Declare(controller)
			return err
		})
	})
}

// endlessTransactions sends messages in transactions that are never discharged.
func endlessTransactions(ctx context.Context, at *target) error {
	const controller, sender, body = 0, 1, 50_000
	message := rawamqp.Message(make([]byte, body))
	return at.swarm(ctx, at.attackers(40, 80), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := signIn(c, sendKey); err != nil {
			return err
		}
		for _, a := range []*wire.Attach{rawamqp.Controller(controller), rawamqp.Sender(sender, endlessQueue)} {
			if err := c.Attach(a); err != nil {
				return err
			}
		}
		var txn []byte
		n := 0
		if at.sink {
			go discard(c)
		}
		return every(ctx, endlessPace, func() (err error) {
			at.countHit()
			if at.sink {
				return c.Send(0, &wire.Transfer{Handle: sender, DeliveryID: new(uint32), DeliveryTag: []byte{1}, MessageFormat: new(uint32), Payload: message})
			}
			if n%90 == 0 { // of the 100 operations that a transaction may have
				if txn, err = c.Declare(controller); err != nil {
					return err
				}
			}
			n++
			_, err = c.Transfer(sender, message, &wire.TransactionalState{TxnID: txn})
			return err
		})
	})
}

// malformedFrames are frames that no client sends: with wrong lengths, endless nesting, or out of place.
func malformedFrames(ctx context.Context, at *target) error {
	deep := make([]byte, 0, 60_000)
	for len(deep) < 50_000 { // a list in a list in a list
		deep = append(deep, 0xc0, 0xff, 0x01)
	}
	frames := [][]byte{
		{0, 0, 0, 20, 2, 0, 0, 0, 0, 0x53, 0x12, 0xd1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0},
		append([]byte{0, 0, 0xc3, 0x58, 2, 0, 0, 0}, deep[:49_992]...),
		wire.AppendFrame(nil, wire.FrameAMQP, 4999, &wire.Transfer{Handle: 7, Payload: make([]byte, 1000)}),
		wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: ptr(uint32(1<<32 - 1)), Settled: true, State: &wire.Accepted{}}),
		wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Attach{Name: "a", Handle: 1<<32 - 1, Role: wire.RoleSender}),
	}
	return at.swarm(ctx, at.attackers(30, 60), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, sendKey); err != nil {
			return err
		}
		go discard(c)
		return every(ctx, stormPace, func() error {
			at.countHit()
			_, err := c.Write(frames[i%len(frames)])
			return err
		})
	})
}
