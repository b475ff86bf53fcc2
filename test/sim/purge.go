package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

const (
	purgeEvery  = 5 * time.Second // on average
	purgedRest  = time.Second     // of receivers, so that something is left to purge
	purgeMax    = 20              // messages of one purge
	redriveMax  = 50
	redriveRest = 2 * time.Second
)

// purged adds a partitioned queue whose messages are received or purged.
func (b *builder) purged() {
	s := b.stream("purged")
	s.immediate, s.purges = true, []purge{}
	s.isExact = true
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.EnablePartitioning = true })
	s.from = []source{{at: s.to, rest: purgedRest}}
	s.expect = func(*sentMessage, string) expectation { return may } // checkPurges knows more
	s.work = append(s.work, (*load).purge)
}

// purge is one request to purge messages.
type purge struct {
	ended   time.Time // zero: no answer came
	removed int
	unknown bool // whether and how many messages were removed
}

// purgeAnswer is the answer to a request to purge messages.
type purgeAnswer struct {
	code fsm.Code
	n    int
}

// purge purges messages until sending ends.
func (l *load) purge(c *client, s *stream) {
	for c.think(l.sending, purgeEvery) {
		p := c.process(l.sending)
		if p == nil {
			return
		}
		got, heard := ask(p, func(answer func(purgeAnswer)) {
			p.node.Router().Purge(s.to, 0, 1+c.rand.IntN(purgeMax), func(code fsm.Code, n int) { answer(purgeAnswer{code, n}) })
		})
		l.operations.Add(1)
		done := purge{ended: time.Now(), removed: got.n, unknown: !heard || got.code != fsm.OK}
		s.mu.Lock()
		s.purges = append(s.purges, done)
		s.mu.Unlock()
	}
}

// checkPurges compares the messages that no receiver got with what was purged: each must have been sent before the
// end of a purge that removed something, and together they must be as many as were removed.
func (s *stream) checkPurges(events []history.Event) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last time.Time
	removed, isUnknown := 0, false
	for _, p := range s.purges {
		removed += p.removed
		isUnknown = isUnknown || p.unknown
		if (p.removed > 0 || p.unknown) && p.ended.After(last) {
			last = p.ended
		}
	}
	sent, accepted, completed, delivered := make(map[string]time.Time), make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for i := range events {
		e := &events[i]
		switch e.Kind { //nolint:exhaustive // the others do not matter
		case history.SendBegun:
			sent[e.ID] = e.At
		case history.SendAccepted:
			accepted[e.ID] = true
		case history.SendRefused:
			delete(sent, e.ID)
		case history.Delivered:
			delivered[e.ID] = true
		case history.Completed:
			completed[e.ID] = true
		}
	}
	missing := 0
	for id := range accepted {
		if delivered[id] {
			continue
		}
		missing++
		if sent[id].After(last) {
			found = append(found, fmt.Sprintf("message %s was neither received nor purged", id))
		}
	}
	if missing > removed && !isUnknown {
		found = append(found, fmt.Sprintf("%d messages are missing and %d were purged", missing, removed))
	}
	if left := len(sent) - len(completed); removed > left {
		found = append(found, fmt.Sprintf("%d messages were purged, and at most %d were not completed", removed, left))
	}
	return found
}

// redriven adds a queue whose dead letters are moved back.
func (b *builder) redriven() {
	s := b.stream("redriven")
	s.redrives = true
	s.isExact = true
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.MaxDeliveryCount = deliveriesMax })
	s.from = []source{{at: s.to}}
}

// redriveAnswer is the answer to a request to redrive dead letters.
type redriveAnswer struct {
	asked, done int
	err         error
}

// redrive moves dead letters back until receiving ends.
func (l *load) redrive(c *client, s *stream) {
	for c.think(l.receiving, redriveRest) {
		p := c.process(l.receiving)
		if p == nil {
			return
		}
		got, heard := await(p, func(ctx context.Context) redriveAnswer { return redriveSome(ctx, p, s) })
		if heard && got.err == nil {
			l.operations.Add(1)
		}
		if got.done > got.asked {
			s.find(fmt.Sprintf("%d messages were redriven of %d", got.done, got.asked))
		}
	}
}

// redriveSome redrives the first dead letters.
func redriveSome(ctx context.Context, p *process, s *stream) redriveAnswer {
	r := p.node.Router()
	dead, err := r.Peek(ctx, deadLetters(s.to), 0, redriveMax, 1<<20)
	if err != nil || len(dead) == 0 {
		return redriveAnswer{err: err}
	}
	var sequences []fsm.SequenceNumber
	for i := range dead {
		sequences = append(sequences, dead[i].Lock.Sequence)
	}
	n, err := r.In(fsm.DefaultNamespace).RedriveEntity(ctx, s.name, sequences)
	return redriveAnswer{len(sequences), n, err}
}
