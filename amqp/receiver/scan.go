package receiver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
)

// Broker has the methods of amqp.Broker that a search calls; the same rules apply to them.
type Broker interface {
	Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)
	FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
}

// Source is what one link searches. All fields but Selector are required.
type Source struct {
	Broker   Broker
	At       fsm.EntityRef
	Selector *evaluate.Selector // nil: all messages

	PeekMessagesMax int // messages of one peek
	PeekBytesMax    int // bytes of the payloads of one peek

	// Work pays for what a selector looks at.
	Work *Work
	Log  *slog.Logger
	// Recovered is deferred by the goroutine of each Lock. It calls recover, and handles a panic.
	Recovered func(context.Context)
}

// scanner peeks at the messages of a Source, and evaluates its selector. Only the goroutine of the outstanding Lock
// uses it.
type scanner struct {
	Source

	within time.Duration // of one peek
	reader message.RuleReader

	// With a selector only:
	expected int // what a page costs, by the last ones
	paid     int // units in advance; below 0: owed, because the search was given up
}

func newScanner(source Source, within time.Duration) scanner {
	return scanner{Source: source, within: within, expected: firstPageCost}
}

// start returns the lowest number that a message of each shard can have; an entity that is not partitioned has one.
func (s *Source) start() []fsm.SequenceNumber {
	all := make([]fsm.SequenceNumber, max(1, len(s.At.Shards)))
	for shard := range all {
		all[shard] = firstOf(shard)
	}
	return all
}

// firstOf returns the lowest number that a message of a shard can have.
func firstOf(shard int) fsm.SequenceNumber { return fsm.SequenceNumber(shard) << fsm.ShardShift }

// scanned is one peek at messages of one shard, in order.
type scanned struct {
	selected []fsm.Delivery
	next     fsm.SequenceNumber // behind the last message that was considered
	empty    bool               // the shard has no message from the number on
	cost     int                // units
}

// page peeks at the messages of a shard from a number on. It considers them until max are selected. If the link has a
// selector, it pays for the work, because one call may look at every message of the entity. A message that is not
// eligible is not selected; nil: all are.
func (s *scanner) page(ctx context.Context, shard int, from fsm.SequenceNumber, max, maxBytes int, eligible func(*fsm.Delivery) bool) (scanned, error) {
	at, most := s.At, max
	if len(at.Shards) > 0 {
		at.Shards = at.Shards[:shard+1] // a peek goes on with the shards behind: there are none
	}
	if s.Selector != nil {
		most = s.PeekMessagesMax
		s.payAhead(ctx)
	}
	within, cancel := context.WithTimeout(ctx, s.within)
	found, err := s.Broker.Peek(within, at, from, most, maxBytes)
	cancel()
	p := scanned{next: from, empty: len(found) == 0, cost: PeekCost}
	if s.Selector != nil {
		defer func() { s.settle(ctx, p.cost) }()
	}
	if err != nil {
		return p, err //nolint:wrapcheck // callers ask for its code
	}
	if s.Selector == nil {
		if p.selected = found; !p.empty {
			p.next = found[len(found)-1].Lock.Sequence + 1
		}
		return p, nil
	}
	bytes, steps := 0, uint64(0)
	for i := range found {
		if len(p.selected) == max {
			break
		}
		d := &found[i]
		p.next = d.Lock.Sequence + 1
		bytes += len(d.Payload) + len(d.Patches)
		if eligible != nil && !eligible(d) {
			continue
		}
		selected, taken := s.selects(d)
		if steps += taken; selected {
			p.selected = append(p.selected, *d)
		}
	}
	p.cost += len(found)/MessagesPerUnit + bytes/unitBytes + int(steps/unitSteps)
	return p, nil
}

// payAhead pays what the next page will probably cost. If links paid after they peek, all of a connection could peek at a time.
func (s *scanner) payAhead(ctx context.Context) {
	if due := s.expected - s.paid; due > 0 && s.Work.pay(ctx, due) {
		s.paid += due
	}
}

// settle pays what a page has cost more than was paid; what it has cost less is left for the next one. Between the pages of a
// queue a Consumer looks for new messages, which costs little, so the expected cost rises at once, and falls slowly.
func (s *scanner) settle(ctx context.Context, cost int) {
	if s.paid -= cost; s.paid < 0 && s.Work.pay(ctx, -s.paid) {
		s.paid = 0
	}
	s.expected = max(cost, (s.expected+cost)/2)
}

// selects evaluates the selector with a message.
func (s *scanner) selects(d *fsm.Delivery) (selected bool, steps uint64) {
	properties, err := s.reader.ReadDelivery(d)
	if err != nil { // it was valid when it was stored
		s.Log.Error("failed to read stored message", "entity", s.At.Name, "sequence", uint64(d.Lock.Sequence), "error", err)
		return false, 0
	}
	return s.Selector.Selects(d, properties)
}

// search performs the outstanding Lock of a Browser or Consumer on a goroutine of its own.
type search struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil before the first Lock
	drains bool               // the outstanding Lock does not wait
}

// codeOf returns the code of an error of the broker, or ServerBusy for an error without a code.
func codeOf(err error) fsm.Code {
	code := fsm.ServerBusy
	_ = errors.As(err, &code)
	return code
}

// begin calls run, with a context that Cancel ends, and then done.
func (s *search) begin(recovered func(context.Context), wait time.Duration, done func(fsm.Code, []fsm.Delivery), run func(ctx context.Context) (fsm.Code, []fsm.Delivery)) {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.cancel, s.drains = cancel, wait == 0
	s.mu.Unlock()
	go func() {
		defer recovered(ctx)
		defer cancel()
		done(run(ctx))
	}()
}

// Cancel implements amqp.Receiver. A Lock that does not wait goes on: if it ended early, its drain would leave out messages.
func (s *search) Cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil && !s.drains {
		s.cancel()
	}
}

// Close implements amqp.Receiver.
func (s *search) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
