package amqp

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/planted"
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

	// next has the number of the next message of each shard, or one number if the entity is not partitioned: new
	// messages of a shard have lower numbers than all messages of the shards behind it. Used by the outstanding Lock
	// only.
	next []fsm.SequenceNumber

	mu   sync.Mutex
	stop chan struct{} // closed by Cancel; of the outstanding Lock
}

func newBrowser(broker Broker, at fsm.EntityRef) *browser {
	b := &browser{broker: broker, at: at, next: make([]fsm.SequenceNumber, max(1, len(at.Shards)))}
	for shard := range b.next {
		b.next[shard] = fsm.SequenceNumber(shard) << fsm.ShardShift
	}
	return b
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
		found, err := b.peek(max, maxBytes, stop)
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

// peek returns the next messages of the first shard that has any. Messages of a shard that does not answer are shown
// when it does. An error means that no shard has answered.
func (b *browser) peek(max, maxBytes int, stop <-chan struct{}) (found []fsm.Delivery, err error) {
	answered := false
	for shard := range b.next {
		select {
		case <-stop:
			return nil, nil
		default:
		}
		at := b.at
		if len(at.Shards) > 0 {
			at.Shards = at.Shards[:shard+1] // a peek goes on with the shards behind: there are none
		}
		ctx, cancel := context.WithTimeout(context.Background(), peekWithin)
		found, failure := b.broker.Peek(ctx, at, b.next[shard], max, maxBytes)
		cancel()
		if n := len(found); n > 0 {
			b.seen(shard, found[n-1].Lock.Sequence)
			return found, nil
		}
		if failure != nil {
			err = failure
		}
		answered = answered || failure == nil
	}
	if answered {
		return nil, nil
	}
	return nil, err
}

// seen records that all messages of a shard up to a number have been shown.
func (b *browser) seen(shard int, last fsm.SequenceNumber) {
	b.next[shard] = last + 1
	if planted.Active(planted.BrowsingSkipsShards) {
		for i := range b.next {
			b.next[i] = max(b.next[i], last+1)
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
