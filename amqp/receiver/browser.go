package receiver

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Browser is the receiver of a browsing link (part 3, 3.5.3: the distribution mode "copy"). It peeks from the oldest message on and then waits for newer ones.
// It shows what a peek shows: locked, deferred and scheduled messages too.
type Browser struct {
	search

	scanner scanner

	// next has the number of the next message of each shard, or one number if the entity is not partitioned: new
	// messages of a shard have lower numbers than all messages of the shards behind it. Used by the outstanding Lock
	// only.
	next []fsm.SequenceNumber
}

// NewBrowser returns a Browser of the messages of source.
func NewBrowser(source Source) *Browser {
	return &Browser{scanner: newScanner(source, browsePeekWithin), next: source.start()}
}

// Lock implements amqp.Receiver; nothing is locked.
func (b *Browser) Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	b.begin(b.scanner.Recovered, wait, done, func(ctx context.Context) (fsm.Code, []fsm.Delivery) {
		return b.run(ctx, min(max, b.scanner.PeekMessagesMax), min(maxBytes, b.scanner.PeekBytesMax), wait)
	})
}

func (b *Browser) run(ctx context.Context, max, maxBytes int, wait time.Duration) (fsm.Code, []fsm.Delivery) {
	until := time.Now().Add(wait)
	for pause := browsePauseMin; ; pause *= 2 {
		found, err := b.peek(ctx, max, maxBytes)
		switch {
		case ctx.Err() != nil:
			return fsm.OK, found
		case err != nil:
			return codeOf(err), nil
		case len(found) > 0 || time.Now().Add(pause).After(until):
			return fsm.OK, found
		}
		sleep(ctx, pause)
	}
}

// peek returns the next messages of the first shard that has any. Messages of a shard that does not answer are shown
// when it does. An error means that no shard has answered.
func (b *Browser) peek(ctx context.Context, max, maxBytes int) (found []fsm.Delivery, err error) {
	answered, until := false, time.Now().Add(scanWithin)
	for shard := range b.next {
		for ctx.Err() == nil && time.Now().Before(until) {
			p, failure := b.scanner.page(ctx, shard, b.next[shard], max, maxBytes, nil)
			if failure != nil {
				err = failure
				break
			}
			answered = true
			if p.empty {
				break
			}
			if b.seen(shard, p.next); len(p.selected) > 0 {
				return p.selected, nil
			}
		}
	}
	if answered {
		return nil, nil
	}
	return nil, err
}

// seen records that all messages of a shard below a number have been shown, or not selected.
func (b *Browser) seen(shard int, next fsm.SequenceNumber) {
	b.next[shard] = next
}
