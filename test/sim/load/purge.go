package load

import (
	"context"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

const (
	purgeEvery  = 5 * time.Second // on average
	purgedRest  = time.Second     // of receivers, so that something is left to purge
	purgeMax    = 20              // messages of one purge
	redriveMax  = 50
	redriveRest = 2 * time.Second
	// purgeUnknownAfter is the time after which a request ends without an answer: a purge skips a shard whose request did.
	purgeUnknownAfter = time.Minute
)

// purged adds a partitioned queue whose messages are received or purged.
func (b *builder) purged() {
	s := b.stream("purged")
	s.immediate, s.Purges, s.rest = true, new(judge.Purges), purgedRest
	s.IsExact = true
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.EnablePartitioning = true })
	s.From = []judge.Source{{At: s.To}}
	s.Expect = func(*judge.Sent, string) judge.Expectation { return judge.May } // s.Purges knows more
	s.work = append(s.work, func(c *client) { b.load.purge(c, s) })
}

// purgeAnswer is the answer to a request to purge messages.
type purgeAnswer struct {
	code fsm.Code
	n    int
}

// purge purges messages until sending ends.
func (l *Load) purge(c *client, s *stream) {
	for c.think(l.sending, purgeEvery) {
		p := c.process(l.sending)
		if p == nil {
			return
		}
		begun := time.Now()
		got, heard := ask(p, func(answer func(purgeAnswer)) {
			p.Node.Router().Purge(s.To, 0, 1+c.rand.IntN(purgeMax), func(code fsm.Code, n int) { answer(purgeAnswer{code, n}) })
		})
		l.operations.Add(1)
		isUnknown := !heard || got.code != fsm.OK || time.Since(begun) >= purgeUnknownAfter
		s.Purges.Add(judge.Purge{Ended: time.Now(), Removed: got.n, Unknown: isUnknown})
	}
}

// redriven adds a queue whose dead letters are moved back.
func (b *builder) redriven() {
	s := b.stream("redriven")
	s.redrives = true
	s.IsExact = true
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.MaxDeliveryCount = deliveriesMax })
	s.From = []judge.Source{{At: s.To}}
}

// redriveAnswer is the answer to a request to redrive dead letters.
type redriveAnswer struct {
	asked, done int
	err         error
}

// redrive moves dead letters back until receiving ends.
func (l *Load) redrive(c *client, s *stream) {
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
			s.Find(fmt.Sprintf("%d messages were redriven of %d", got.done, got.asked))
		}
	}
}

// redriveSome redrives the first dead letters.
func redriveSome(ctx context.Context, p *Process, s *stream) redriveAnswer {
	r := p.Node.Router()
	dead, err := r.Peek(ctx, deadLetters(s.To), 0, redriveMax, 1<<20)
	if err != nil || len(dead) == 0 {
		return redriveAnswer{err: err}
	}
	var sequences []fsm.SequenceNumber
	for i := range dead {
		sequences = append(sequences, dead[i].Lock.Sequence)
	}
	n, err := r.In(fsm.DefaultNamespace).RedriveEntity(ctx, s.Name, sequences)
	return redriveAnswer{len(sequences), n, err}
}
