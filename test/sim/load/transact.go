package load

import (
	"fmt"
	"strconv"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
)

const (
	// neverScheduled is a number that no message of the simulation gets.
	neverScheduled = fsm.SequenceNumber(1) << 40
	// neverState is a state of a session that no transaction sets.
	neverState = 1 << 40
)

// planned adds a queue, and a partitioned one elsewhere, to which transactions schedule messages under reserved numbers. Other
// transactions cancel some of them. A part of the transactions is refused, which must leave nothing.
func (b *builder) planned() {
	s := b.stream("planned")
	s.schedules, s.IsExact = true, true
	s.ExpectFatesAtPlaces()
	s.To = b.queue(s, s.Name, nil)
	far := b.queue(s, "planned-far", func(e *fsm.EntitySettings) { e.EnablePartitioning = true })
	s.From = []judge.Source{{Name: "near", At: s.To}, {Name: "far", At: far}}
	for range 3 {
		s.work = append(s.work, func(c *client) { b.load.plan(c, s) })
	}
}

// plan schedules messages in transactions, and cancels half of them some time later in others.
func (l *Load) plan(c *client, s *stream) {
	for c.think(l.sending, sendEvery) {
		p := c.process(l.sending)
		if p == nil {
			return
		}
		m, cluster := l.message(c, s), l.cluster.Restored()
		at := s.To
		if c.rand.IntN(2) == 0 {
			at = s.From[1].At
			s.SetPlace(m.ID, s.From[1].Name)
		}
		got, heard := ask(p, func(answer func(scheduled)) {
			p.Node.Router().Reserve(at, []fsm.Message{m}, func(code fsm.Code, n []fsm.SequenceNumber) { answer(scheduled{code, n}) })
		})
		if !heard || got.code != fsm.OK {
			continue
		}
		m.Reserved = got.numbers[0]
		tx := fsm.Transaction{Sends: []fsm.SendTo{{At: at, Via: &s.To, Messages: []fsm.Message{m}}}}
		s.Add(history.Event{Kind: history.SendBegun, ID: m.ID, Client: c.name})
		if c.rand.IntN(4) == 0 {
			tx.Cancels = []fsm.CancelAt{{At: s.To, Sequences: []fsm.SequenceNumber{neverScheduled}}}
			code := l.refuse(p, s, tx, fsm.MessageNotFound)
			s.Add(history.Event{Kind: history.SendRefused, ID: m.ID, Client: c.name, Note: note(p, code)})
			continue
		}
		code, heard := transact(p, tx)
		s.Add(history.Event{Kind: l.outcome(s, heard, code, 1), ID: m.ID, Client: c.name, Note: note(p, code)})
		s.checkTransaction(code, heard)
		if !heard || code != fsm.OK || c.rand.IntN(2) == 0 || !c.think(l.sending, scheduleMax/2) {
			continue
		}
		if p = c.process(l.sending); p != nil && l.cluster.Restored() == cluster { // a restored one gives numbers out again
			l.cancelInTransaction(c, p, s, m.ID, at, got.numbers)
		}
	}
}

// cancelInTransaction cancels a scheduled message in a transaction, or in one that is refused.
func (l *Load) cancelInTransaction(c *client, p *Process, s *stream, id string, at fsm.EntityRef, numbers []fsm.SequenceNumber) {
	tx, asked := fsm.Transaction{Cancels: []fsm.CancelAt{{At: at, Sequences: numbers}}}, time.Now()
	if c.rand.IntN(4) == 0 {
		tx.Sends = []fsm.SendTo{{At: at, Messages: []fsm.Message{{ID: "large", Payload: tooLarge, Session: id}}}}
		_ = l.refuse(p, s, tx, fsm.MessageTooLarge)
		return
	}
	code, heard := transact(p, tx)
	l.noteCancelled(s, id, asked, code, heard, at.ID == s.To.ID)
	if code != fsm.MessageNotFound {
		s.checkTransaction(code, heard)
	}
}

// refuseState tries to set the state of a session in a transaction that is refused.
func (l *Load) refuseState(p *Process, s *stream, held *router.SessionReceiver) {
	state := held.StateChange([]byte(strconv.Itoa(neverState)))
	_ = l.refuse(p, s, fsm.Transaction{States: []fsm.StateAt{state}, Cancels: []fsm.CancelAt{{At: s.To, Sequences: []fsm.SequenceNumber{neverScheduled}}}}, fsm.MessageNotFound)
}

// refuse tries a transaction of which one operation must be refused with a code. Another one may be refused before.
func (l *Load) refuse(p *Process, s *stream, tx fsm.Transaction, refusal fsm.Code) fsm.Code {
	code, heard := transact(p, tx)
	switch {
	case heard && code == fsm.OK:
		s.Find(fmt.Sprintf("a transaction was performed with an operation that must be refused: %v", refusal))
	case heard && code == refusal:
		l.operations.Add(1)
	}
	return code
}

// checkTransaction notes a transaction that was refused for no reason.
func (s *stream) checkTransaction(code fsm.Code, heard bool) {
	if heard && code != fsm.OK && code != fsm.ServerBusy && !isUnknown(code) {
		s.Find(fmt.Sprintf("a transaction failed: %v", code))
	}
}

// transact performs a transaction.
func transact(p *Process, tx fsm.Transaction) (fsm.Code, bool) {
	return ask(p, func(answer func(fsm.Code)) { p.Node.Router().Transact(tx, answer) })
}
