package amqp

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Browsing is receiving without removing: the source of the link has the distribution mode "copy" (part 3,
// 3.5.3). A queue browser of JMS asks for it, with settled transfers, which would otherwise mean
// receive-and-delete.

// distributionCopy is the distribution mode of a browsing link.
const distributionCopy = wire.Symbol("copy")

// browses reports whether a source asks to browse. A durable subscription of JMS has the same distribution mode
// and consumes: its terminus is durable.
func browses(s *wire.Source) bool {
	return s != nil && s.DistributionMode != nil && *s.DistributionMode == distributionCopy && (s.Durable == nil || *s.Durable == 0)
}

// browser is the Receiver of a browsing link. It peeks from the oldest message on and then waits for newer ones.
// It shows what a peek shows: locked, deferred and scheduled messages too.
type browser struct {
	broker Broker
	at     fsm.EntityRef

	next fsm.SequenceNumber // used by the outstanding Lock only

	mu   sync.Mutex
	stop chan struct{} // closed by Cancel; of the outstanding Lock
}

// Lock implements Receiver; nothing is locked.
func (b *browser) Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	stop := make(chan struct{})
	b.mu.Lock()
	b.stop = stop
	b.mu.Unlock()
	go b.run(min(max, peekMessagesMax), min(maxBytes, peekBytesMax), time.Now().Add(wait), stop, done)
}

func (b *browser) run(max, maxBytes int, until time.Time, stop <-chan struct{}, done func(fsm.Code, []fsm.Delivery)) {
	for pause := browsePauseMin; ; pause *= 2 {
		ctx, cancel := context.WithTimeout(context.Background(), peekWithin)
		found, err := b.broker.Peek(ctx, b.at, b.next, max, maxBytes)
		cancel()
		if len(found) > 0 {
			b.next = found[len(found)-1].Lock.Sequence + 1
		}
		switch {
		case err != nil:
			done(codeOf(err), nil)
			return
		case len(found) > 0 || time.Now().Add(pause).After(until):
			done(fsm.OK, found)
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			done(fsm.OK, nil)
			return
		}
	}
}

// Cancel implements Receiver.
func (b *browser) Cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		close(b.stop)
		b.stop = nil
	}
}

// Close implements Receiver.
func (b *browser) Close() { b.Cancel() }
