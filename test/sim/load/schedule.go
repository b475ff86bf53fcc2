package load

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// cancelled adds a queue to which messages are scheduled; some of them are cancelled.
func (b *builder) cancelled() {
	s := b.stream("cancelled")
	s.schedules = true
	s.IsExact = true
	s.ExpectFates()
	s.To = b.queue(s, s.Name, nil)
	s.From = []judge.Source{{At: s.To}}
	for range 3 {
		s.work = append(s.work, func(c *client) { b.load.scheduleAndCancel(c, s) })
	}
}

// scheduled is the answer to a request to schedule messages.
type scheduled struct {
	code    fsm.Code
	numbers []fsm.SequenceNumber
}

// scheduleAndCancel schedules messages, and cancels half of them some time later: before, about when or after they
// are due.
func (l *Load) scheduleAndCancel(c *client, s *stream) {
	for c.think(l.sending, sendEvery) {
		p := c.process(l.sending)
		if p == nil {
			return
		}
		m, cluster := l.message(c, s), l.cluster.Restored()
		s.Add(history.Event{Kind: history.SendBegun, ID: m.ID, Client: c.name})
		got, heard := ask(p, func(answer func(scheduled)) {
			p.Node.Router().Schedule(s.To, []fsm.Message{m}, func(code fsm.Code, n []fsm.SequenceNumber) { answer(scheduled{code, n}) })
		})
		s.Add(history.Event{Kind: l.outcome(s, heard, got.code, 1), ID: m.ID, Client: c.name, Note: note(p, got.code)})
		if !heard || got.code != fsm.OK || c.rand.IntN(2) == 0 || !c.think(l.sending, scheduleMax/2) {
			continue
		}
		if p = c.process(l.sending); p != nil && l.cluster.Restored() == cluster { // a restored one gives numbers out again
			l.cancel(p, s, m.ID, got.numbers)
		}
	}
}

// cancel cancels a scheduled message and notes what follows for its delivery.
func (l *Load) cancel(p *Process, s *stream, id string, numbers []fsm.SequenceNumber) {
	asked := time.Now()
	code, heard := ask(p, func(answer func(fsm.Code)) { p.Node.Router().CancelScheduled(s.To, numbers, answer) })
	l.noteCancelled(s, id, asked, code, heard, true)
}

// noteCancelled notes the answer to a cancellation, see [judge.Stream.Cancelled].
func (l *Load) noteCancelled(s *stream, id string, asked time.Time, code fsm.Code, heard, isThere bool) {
	if s.Cancelled(id, asked, code, heard, isThere) {
		l.operations.Add(1)
	}
}
