package abuse

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Receivers that hold messages.

const (
	unsettledQueue, unsettledBytes = "abuse-hoard", 1_000
	unreadQueue, unreadBytes       = "abuse-deaf", 100_000

	stockBytes = 24 << 20 // of messages in a queue for receivers
)

// createQueue makes a queue.
func createQueue(name string) func(*abuseRun) {
	return func(a *abuseRun) { a.CreateQueue(a.t, name, harness.Settings{LockDuration: 5 * time.Minute}) }
}

// deleteQueue deletes it.
func deleteQueue(name string) func(*abuseRun) {
	return func(a *abuseRun) { a.DeleteQueue(a.t, name) }
}

// filledQueue creates a queue with many messages of a size.
func filledQueue(name string, size int) func(*abuseRun) {
	return func(a *abuseRun) {
		createQueue(name)(a)
		err := withSession(a.t.Context(), a.Members[0], func(s *amqp.Session) error {
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
	if err := signIn(c, harness.ListenKeyName); err != nil {
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
