package amqp

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
)

// scanner peeks at the messages of an entity for one link, and evaluates the selector of the link, if it has one. Only
// the goroutine of the outstanding Lock uses it.
type scanner struct {
	conn     *conn
	at       fsm.EntityRef
	selector *fsm.Selector // nil: all messages
	within   time.Duration // of one peek
	reader   message.RuleReader
}

// newScanner returns a scanner for the link; its selector was parsed before.
func (l *outgoingLink) newScanner(within time.Duration) *scanner {
	s := &scanner{conn: l.session.conn, at: l.entity, within: within}
	if l.selector != nil {
		parsed, err := fsm.NewSelector(l.selector.sql)
		if err != nil {
			panic("amqp: selector that was parsed before: " + err.Error())
		}
		s.selector = parsed
	}
	return s
}

// start returns the lowest number that a message of each shard can have; an entity that is not partitioned has one.
func (s *scanner) start() []fsm.SequenceNumber {
	all := make([]fsm.SequenceNumber, max(1, len(s.at.Shards)))
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
	at, most := s.at, max
	if len(at.Shards) > 0 {
		at.Shards = at.Shards[:shard+1] // a peek goes on with the shards behind: there are none
	}
	if s.selector != nil {
		most = peekMessagesMax
	}
	within, cancel := context.WithTimeout(ctx, s.within)
	found, err := s.conn.config.Broker.Peek(within, at, from, most, maxBytes)
	cancel()
	p := scanned{next: from, empty: len(found) == 0, cost: scanCost}
	if err != nil {
		return p, err //nolint:wrapcheck // callers ask for its code
	}
	if s.selector == nil {
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
	p.cost += len(found)/scanItemsPerUnit + bytes/scanUnitBytes + int(steps/scanUnitSteps)
	s.conn.scanWork.pay(ctx, p.cost)
	return p, nil
}

// selects evaluates the selector with a message.
func (s *scanner) selects(d *fsm.Delivery) (selected bool, steps uint64) {
	properties, err := s.reader.ReadDelivery(d)
	if err != nil { // it was valid when it was stored
		s.conn.log.Error("failed to read stored message", "entity", s.at.Name, "sequence", uint64(d.Lock.Sequence), "error", err)
		return false, 0
	}
	return s.selector.Selects(d, properties)
}

// search performs the outstanding Lock of a Receiver that searches for messages, on a goroutine of its own.
type search struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil before the first Lock
	drains bool               // the outstanding Lock does not wait
}

// begin calls run, with a context that Cancel ends, and then done.
func (s *search) begin(c *conn, wait time.Duration, done func(fsm.Code, []fsm.Delivery), run func(ctx context.Context) (fsm.Code, []fsm.Delivery)) {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.cancel, s.drains = cancel, wait == 0
	s.mu.Unlock()
	go func() {
		defer c.recovered(ctx)
		defer cancel()
		done(run(ctx))
	}()
}

// Cancel implements Receiver. A Lock that does not wait goes on: if it ended early, its drain would leave out messages.
func (s *search) Cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil && !s.drains {
		s.cancel()
	}
}

// Close implements Receiver.
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

// scanWork pays for the scans of all links of a connection that have selectors, one after the other.
type scanWork struct {
	turn    chan struct{}
	account work.Account
}

// pay waits until the connection may do work of cost units, or ctx ends.
func (w *scanWork) pay(ctx context.Context, cost int) {
	select {
	case w.turn <- struct{}{}:
		w.account.Wait(ctx, nil, cost)
		<-w.turn
	case <-ctx.Done():
	}
}
