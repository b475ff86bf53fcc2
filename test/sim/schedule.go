package sim

import (
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// clockSlack is how far the wall time of a partition may be from the time of the simulation, because of the clocks
// of its members.
const clockSlack = 2 * time.Second

// cancelled adds a queue to which messages are scheduled; some of them are cancelled.
func (b *builder) cancelled() {
	s := b.stream("cancelled")
	s.schedules = true
	s.isExact = true
	s.fates = make(map[string]expectation)
	s.to = b.queue(s, s.name, nil)
	s.from = []source{{at: s.to}}
	s.expect = func(m *sentMessage, _ string) expectation {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fates[m.id]
	}
	for range 3 {
		s.work = append(s.work, (*load).scheduleAndCancel)
	}
}

// scheduled is the answer to a request to schedule messages.
type scheduled struct {
	code    fsm.Code
	numbers []fsm.SequenceNumber
}

// scheduleAndCancel schedules messages, and cancels half of them some time later: before, about when or after they
// are due.
func (l *load) scheduleAndCancel(c *client, s *stream) {
	for c.think(l.sending, sendEvery) {
		p := c.process(l.sending)
		if p == nil {
			return
		}
		m, cluster := l.message(c, s), l.world.cluster()
		s.Add(history.Event{Kind: history.SendBegun, ID: m.ID, Client: c.name})
		got, heard := ask(p, func(answer func(scheduled)) {
			p.node.Router().Schedule(s.to, []fsm.Message{m}, func(code fsm.Code, n []fsm.SequenceNumber) { answer(scheduled{code, n}) })
		})
		s.Add(history.Event{Kind: l.outcome(s, heard, got.code, 1), ID: m.ID, Client: c.name, Note: note(p, got.code)})
		if !heard || got.code != fsm.OK || c.rand.IntN(2) == 0 || !c.think(l.sending, scheduleMax/2) {
			continue
		}
		if p = c.process(l.sending); p != nil && l.world.cluster() == cluster { // a restored one gives numbers out again
			l.cancel(p, s, m.ID, got.numbers)
		}
	}
}

// cancel cancels a scheduled message and notes what follows for its delivery.
func (l *load) cancel(p *process, s *stream, id string, numbers []fsm.SequenceNumber) {
	asked := time.Now()
	code, heard := ask(p, func(answer func(fsm.Code)) { p.node.Router().CancelScheduled(s.to, numbers, answer) })
	l.noteCancelled(s, id, asked, code, heard, true)
}

// noteCancelled notes what the answer to a cancellation means for a message. isThere is false if the message may still be on its
// way to the entity in which it waits.
func (l *load) noteCancelled(s *stream, id string, asked time.Time, code fsm.Code, heard, isThere bool) {
	s.mu.Lock()
	due := s.due[id]
	switch {
	case s.isRestored: // maybe since it was asked
	case heard && code == fsm.OK:
		l.operations.Add(1)
		s.fates[id] = never
	case heard && code == fsm.MessageNotFound:
		s.fates[id] = must
	default:
		s.fates[id] = may
	}
	s.mu.Unlock()
	switch now := time.Now(); {
	case heard && code == fsm.MessageNotFound && isThere && now.Before(due.Add(-clockSlack-s.clocks.ahead(now))):
		s.find(fmt.Sprintf("message %s, due at %v, could not be cancelled at %v: %v", id, due, now, code))
	case heard && code == fsm.OK && asked.After(due.Add(cancelWithin)):
		s.find(fmt.Sprintf("message %s, due at %v, was cancelled at %v", id, due, asked))
	}
}

// cancelWithin is how long after it was due a message may still be cancelled: its partition may have no leader.
const cancelWithin = 2 * time.Minute

// checkDue notes a message that comes before it was scheduled for, although no clock was wrong, or earlier than wrong
// clocks may cause.
func (s *stream) checkDue(id string) {
	s.mu.Lock()
	due, isScheduled := s.due[id]
	s.mu.Unlock()
	if isScheduled && time.Now().Before(due.Add(-s.clockError-s.clocks.ahead(time.Now())).Truncate(time.Millisecond)) {
		s.find(fmt.Sprintf("early: message %s came at %v, due at %v", id, time.Now(), due))
	}
}
