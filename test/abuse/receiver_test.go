package abuse

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Receivers that take and give nothing back.

const (
	hoardQueue, hoardBytes = "abuse-hoard", 1_000
	deafQueue, deafBytes   = "abuse-deaf", 100_000

	stockBytes = 24 << 20 // of messages in a queue that is received from
)

// queueFor makes a queue.
func queueFor(name string) func(*arena) {
	return func(a *arena) { a.CreateQueue(a.t, name, harness.Settings{LockDuration: 5 * time.Minute}) }
}

// without deletes it.
func without(name string) func(*arena) {
	return func(a *arena) { a.DeleteQueue(a.t, name) }
}

// stocked makes a queue full of messages of a size.
func stocked(name string, size int) func(*arena) {
	return func(a *arena) {
		queueFor(name)(a)
		err := session(a.t.Context(), a.Members[0], func(s *amqp.Session) error {
			link, err := s.NewSender(a.t.Context(), name, nil)
			if err != nil {
				return err
			}
			const underWay = 200
			var receipts []amqp.SendReceipt
			for range stockBytes / size / underWay {
				for range underWay {
					receipt, err := link.SendWithReceipt(a.t.Context(), amqp.NewMessage(make([]byte, size)), nil)
					if err != nil {
						return err
					}
					receipts = append(receipts, receipt)
				}
				for _, r := range receipts {
					if _, err := r.Wait(a.t.Context()); err != nil {
						return err
					}
				}
				receipts = receipts[:0]
			}
			return nil
		})
		if err != nil {
			a.t.Fatal(fmt.Errorf("fill %s: %w", name, err))
		}
	}
}

// hoard receives everything and settles nothing.
func hoard(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.n(60, 300), func(_ context.Context, _ int, c *rawamqp.Conn) error {
		if err := take(c, hoardQueue); err != nil {
			return err
		}
		at.hit()
		return held(c)
	})
}

// take signs in and gives a link all credit that there is.
func take(c *rawamqp.Conn, queue string) error {
	if err := signIn(c, harness.ListenKeyName); err != nil {
		return err
	}
	if err := c.Attach(rawamqp.Receiver(0, queue)); err != nil {
		return err
	}
	return c.Send(0, rawamqp.Credit(0, 1<<31-1))
}

// deaf asks for everything and reads nothing.
func deaf(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.n(60, 300), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := take(c, deafQueue); err != nil {
			return err
		}
		at.hit()
		<-ctx.Done()
		return nil
	})
}
