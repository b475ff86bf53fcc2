package abuse

import (
	"context"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Endless sessions, links and flows, and numbers at the end of their range.

const (
	wrapQueue   = "abuse-wrap"
	stormPace   = 20 * time.Millisecond // between two writes of a storm
	stormFrames = 50                    // in one write
)

// sessionFlood begins every session that the member allows, half of them before a token.
func sessionFlood(ctx context.Context, at *target) error {
	const sessions = 5000
	return at.swarm(ctx, at.attackers(12, 60), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		go discard(c)
		c.SendOnly = true
		login := c.Anonymous
		if i%2 == 0 {
			login = func() error { return c.Login(sendKey, ownSecret) }
		}
		if err := login(); err != nil {
			return err
		}
		if err := c.Send(0, openFrame()); err != nil {
			return err
		}
		channel := uint16(0)
		return every(ctx, stormPace, func() error {
			var b []byte
			for range stormFrames {
				channel = (channel + 1) % sessions
				b = wire.AppendFrame(b, wire.FrameAMQP, channel, rawamqp.Begin())
			}
			at.countHit()
			_, err := c.Write(b)
			return err
		})
	})
}

// sendFrames signs in, opens a session and writes the frames of each round.
func sendFrames(ctx context.Context, at *target, n int, frames func(c *rawamqp.Conn, round uint32) []byte) error {
	return at.swarm(ctx, n, func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		go discard(c)
		round := uint32(0)
		return every(ctx, stormPace, func() error {
			at.countHit()
			_, err := c.Write(frames(c, round))
			round++
			return err
		})
	})
}

// detachStorm attaches links and detaches them at once, with repeated names and handles.
func detachStorm(ctx context.Context, at *target) error {
	return sendFrames(ctx, at, at.attackers(12, 30), func(_ *rawamqp.Conn, round uint32) (b []byte) {
		for i := range uint32(stormFrames) {
			a := rawamqp.Receiver(i, openQueue)
			a.Name = fmt.Sprintf("link-%d-%d", i, round%4)
			b = wire.AppendFrame(b, wire.FrameAMQP, 0, a)
			b = wire.AppendFrame(b, wire.FrameAMQP, 0, &wire.Detach{Handle: i, Closed: true})
		}
		return b
	})
}

// flowStorm requests an answer to each of many flows, and grants and withdraws credit.
func flowStorm(ctx context.Context, at *target) error {
	return sendFrames(ctx, at, at.attackers(12, 30), func(_ *rawamqp.Conn, round uint32) (b []byte) {
		if round == 0 {
			return wire.AppendFrame(b, wire.FrameAMQP, 0, rawamqp.Receiver(0, openQueue+"/$DeadLetterQueue"))
		}
		for i := range uint32(4 * stormFrames) {
			f := rawamqp.Credit(0, i%2)
			f.Echo, f.Drain = true, i%3 == 0
			b = wire.AppendFrame(b, wire.FrameAMQP, 0, f)
		}
		return b
	})
}

// wrapAround sends across the end of the range of delivery-ids and delivery-counts, with the
// highest handle, which must succeed; then it reuses numbers.
func wrapAround(ctx context.Context, at *target) error {
	const handle, first, legal = 9999, uint32(1<<32 - 15), 30
	return at.swarm(ctx, at.attackers(6, 12), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := c.Login(sendKey, ownSecret); err != nil {
			return err
		}
		begin := rawamqp.Begin()
		begin.NextOutgoingID = first
		if err := c.Send(0, openFrame(), begin); err != nil {
			return err
		}
		a := rawamqp.Sender(handle, wrapQueue)
		a.InitialDeliveryCount = ptr(first)
		if err := c.Attach(a); err != nil {
			return err
		}
		accepted, ended := make(chan int), make(chan error, 1)
		if at.sink {
			go discard(c)
		} else {
			go func() { ended <- outcomes(ctx, c, accepted) }()
		}
		n := uint32(0)
		return every(ctx, stormPace, func() error {
			id := first + n%legal
			if n++; n == legal {
				at.countHit() // all were accepted
			}
			t := &wire.Transfer{Handle: handle, DeliveryID: &id, DeliveryTag: []byte{byte(id)}, MessageFormat: new(uint32), Payload: rawamqp.Message(make([]byte, 64))}
			if err := c.Send(0, t); err != nil || at.sink {
				return err
			}
			select {
			case <-accepted:
				return nil
			case err := <-ended:
				return err
			case <-ctx.Done():
				return nil
			}
		})
	})
}

// outcomes reports how many deliveries each disposition settles, until the connection ends.
func outcomes(ctx context.Context, c *rawamqp.Conn, settled chan<- int) error {
	for {
		d, err := rawamqp.Expect[*wire.Disposition](c)
		if err != nil {
			return err
		}
		n := 1
		if d.Last != nil {
			n += int(*d.Last - d.First)
		}
		select {
		case settled <- n:
		case <-ctx.Done():
			return nil
		}
	}
}
