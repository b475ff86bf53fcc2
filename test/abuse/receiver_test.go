package abuse

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Receivers that hold messages.

const (
	unsettledQueue, unsettledBytes = "abuse-hoard", 1_000
	unreadQueue, unreadBytes       = "abuse-deaf", 100_000

	stockBytes = 24 << 20 // of messages in a queue for receivers
)

// filledQueue creates a queue of the attackers with many messages of a size.
func filledQueue(name string, size int) func(*abuseRun) {
	return func(a *abuseRun) {
		createQueue(name)(a)
		if err := a.fill(name, stockBytes/size, rawamqp.Message(make([]byte, size))); err != nil {
			a.t.Fatal(fmt.Errorf("fill %s: %w", name, err))
		}
	}
}

// fill sends an encoded message n times to an entity of the attackers. Their namespace may still be refused because of what the
// attack before has stored.
func (a *abuseRun) fill(name string, n int, message []byte) error {
	return a.members().connect(a.t.Context(), a.Members[0].AMQP, func(c *rawamqp.Conn) error {
		if err := errors.Join(signIn(c, sendKey), c.Attach(rawamqp.Sender(0, name))); err != nil {
			return err
		}
		const underWay = 200
		until := time.Now().Add(recoverWithin)
		for id, accepted := uint32(0), 0; accepted < n; {
			for range underWay {
				if _, err := c.Write(appendTransfers(nil, 0, id, message)); err != nil {
					return err
				}
				id++
			}
			var refused *wire.Error
			for settled := 0; settled < underWay; {
				d, err := rawamqp.Expect[*wire.Disposition](c)
				if err != nil {
					return err
				}
				count := 1
				if d.Last != nil {
					count += int(*d.Last - d.First)
				}
				settled += count
				switch state := d.State.(type) {
				case *wire.Accepted:
					accepted += count
				case *wire.Rejected:
					refused = state.Error
				default:
					return fmt.Errorf("send: %+v", state)
				}
			}
			if refused != nil {
				if time.Now().After(until) {
					return fmt.Errorf("send: refused for %v: %+v", recoverWithin, refused)
				}
				sleep(a.t.Context(), sampleEvery)
			}
		}
		return nil
	})
}

// receiveWithoutSettling receives everything and settles nothing, with locks.
func receiveWithoutSettling(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(60, 300), func(_ context.Context, _ int, c *rawamqp.Conn) error {
		if err := attachReceiver(c, unsettledQueue); err != nil {
			return err
		}
		at.countHit()
		return waitClosed(c)
	})
}

// attachReceiver signs in and grants a link the maximum credit.
func attachReceiver(c *rawamqp.Conn, queue string) error {
	if err := signIn(c, listenKey); err != nil {
		return err
	}
	if err := c.Attach(rawamqp.Receiver(0, queue)); err != nil {
		return err
	}
	return c.Send(0, rawamqp.Credit(0, 1<<31-1))
}

// receiveWithoutReading requests everything and reads nothing.
func receiveWithoutReading(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(60, 300), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := attachReceiver(c, unreadQueue); err != nil {
			return err
		}
		at.countHit()
		<-ctx.Done()
		return nil
	})
}
