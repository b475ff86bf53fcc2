package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// receive receives and settles until receiving ends.
func (l *load) receive(c *client, s *stream, from source) {
	for {
		p := c.process(l.receiving)
		if p == nil {
			return
		}
		if s.hasSessions {
			l.receiveSession(c, p, s, from)
			continue
		}
		r := p.node.Router().Receiver(from.at, false)
		for l.receiving.Err() == nil && !p.hasEnded() && c.rand.IntN(50) != 0 {
			if !l.receiveSome(c, p, s, from, r, time.Now()) {
				sleep(reconnectAfter)
			}
			l.fetchDeferred(c, p, s, from)
		}
		r.Close()
	}
}

// locked is the answer to a request for messages.
type locked struct {
	code       fsm.Code
	deliveries []fsm.Delivery
}

// receiveSome makes one request for messages and settles what comes; the locks last at least for the lock duration
// from since on. It returns false when the request failed.
func (l *load) receiveSome(c *client, p *process, s *stream, from source, r *router.Receiver, since time.Time) bool {
	got, heard := ask(p, func(answer func(locked)) {
		r.Lock(1+c.rand.IntN(batchMax), 1<<20, lockWait, func(code fsm.Code, d []fsm.Delivery) { answer(locked{code, d}) })
	})
	if !heard || got.code != fsm.OK {
		return false
	}
	l.settleAll(c, p, s, from, since, got.deliveries)
	return true
}

// settleAll records deliveries and settles each after a while. Their locks began at since or later.
func (l *load) settleAll(c *client, p *process, s *stream, from source, since time.Time, deliveries []fsm.Delivery) {
	until := since.Add(lockSure) // whatever the clocks of the members show
	if !time.Now().Before(until) {
		return // too late: the locks may have ended before the answer came
	}
	isRelay := s.relay != nil && from.at.ID == s.relay.at.ID
	for i := range deliveries {
		d := &deliveries[i]
		l.operations.Add(1)
		if isRelay {
			continue
		}
		s.checkDue(d)
		s.Add(history.Event{
			Kind: history.Delivered, ID: idOf(d.Payload), Entity: from.name, Client: c.name, Sequence: int64(d.Lock.Sequence), EnqueuedSequence: int64(d.Topic),
			FailedDeliveries: d.FailedDeliveries, LockedUntil: until, Note: fmt.Sprintf("m%d, epoch %d", p.member.number, d.Lock.Epoch),
		})
	}
	for i := range deliveries {
		if !c.think(context.Background(), thinkMean) || p.hasEnded() {
			return
		}
		if isRelay {
			l.moveOn(p, s, &deliveries[i])
			continue
		}
		if c.rand.IntN(100) == 0 && !s.hasSessions && l.sending.Err() == nil {
			l.renew(c, p, s, from, &deliveries[i])
		}
		l.settle(c, p, s, from, &deliveries[i])
	}
}

// settle completes most deliveries, returns or defers some, and leaves a few until their locks end.
func (l *load) settle(c *client, p *process, s *stream, from source, d *fsm.Delivery) {
	settlement := fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete}
	switch n := c.rand.IntN(100); {
	case from.at.Sub != fsm.MainQueue:
	case n < 6:
		settlement.Verb = fsm.Abandon
	case n < 9:
		settlement.Verb = fsm.Release
	case n < 11 && from.name == "" && !s.hasSessions:
		settlement.Verb = fsm.Defer
		s.noteDeferred(d.Lock.Sequence, true)
	case n < 12 && s.hasDeadLetters():
		settlement.Verb = fsm.DeadLetter
	case n < 13 && !s.hasSessions: // releasing the session would end the lock
		if c.rand.IntN(4) != 0 || l.sending.Err() != nil {
			return
		}
		sleep(lockDuration + time.Duration(c.rand.Int64N(int64(lockDuration)))) // the settlement is too late
	}
	id := idOf(d.Payload)
	s.Add(history.Event{Kind: history.SettleBegun, ID: id, Entity: from.name, Client: c.name, Note: fmt.Sprint(settlement.Verb)})
	code, heard := settle(p, from.at, settlement)
	kind := history.SettleFailed
	if heard && code == fsm.OK {
		l.operations.Add(1)
		kind = history.Returned
		if settlement.Verb == fsm.Complete {
			kind = history.Completed
			s.noteDeferred(d.Lock.Sequence, false)
		}
	}
	s.Add(history.Event{Kind: kind, ID: id, Entity: from.name, Client: c.name, Note: note(p, code)})
}

// renew extends a lock and waits a little more than it lasted before.
func (l *load) renew(c *client, p *process, s *stream, from source, d *fsm.Delivery) {
	asked := time.Now()
	codes, heard := ask(p, func(answer func([]fsm.Code)) {
		p.node.Router().Renew(from.at, []fsm.LockID{d.Lock}, func(codes []fsm.Code, _ []fsm.Instant) { answer(codes) })
	})
	if heard && codes[0] == fsm.OK {
		l.operations.Add(1)
		s.Add(history.Event{Kind: history.Renewed, ID: idOf(d.Payload), Entity: from.name, Client: c.name, LockedUntil: asked.Add(lockSure)})
		sleep(time.Duration(c.rand.Int64N(int64(lockDuration / 2))))
	}
}

// moveOn moves a message to the end of a relay: it is completed and sent, or neither.
func (l *load) moveOn(p *process, s *stream, d *fsm.Delivery) {
	_, _ = ask(p, func(answer func(fsm.Code)) {
		p.node.Router().Transact(fsm.Transaction{
			Settles: []fsm.SettleAt{{At: s.relay.at, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Complete}}}},
			Sends:   []fsm.SendTo{{At: s.from[0].at, Via: &s.relay.at, Messages: []fsm.Message{{ID: idOf(d.Payload), Payload: d.Payload}}}},
		}, answer)
	})
	l.operations.Add(1)
}

// hasDeadLetters reports whether a client receives the dead letters of a stream.
func (s *stream) hasDeadLetters() bool {
	return len(s.from) > 1 && s.from[1].at.Sub == fsm.DeadLetterQueue
}

func (s *stream) noteDeferred(sequence fsm.SequenceNumber, maybe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, was := s.deferred[sequence]; maybe || was { // a restored cluster may have it deferred again
		s.deferred[sequence] = maybe
	}
}

// fetchDeferred fetches a message that may be deferred, if there is one, and settles it.
func (l *load) fetchDeferred(c *client, p *process, s *stream, from source) {
	var sequences []fsm.SequenceNumber
	s.mu.Lock()
	for sequence, maybe := range s.deferred {
		if maybe {
			sequences = append(sequences, sequence)
		}
	}
	s.mu.Unlock()
	if len(sequences) == 0 || from.at.Sub != fsm.MainQueue || from.name != "" {
		return
	}
	one := sequences[c.rand.IntN(len(sequences))]
	asked := time.Now()
	got, heard := ask(p, func(answer func(locked)) {
		p.node.Router().Fetch(from.at, []fsm.SequenceNumber{one}, false, func(code fsm.Code, d []fsm.Delivery) { answer(locked{code, d}) })
	})
	if heard && got.code == fsm.OK {
		l.settleAll(c, p, s, from, asked, got.deliveries)
	}
}

// checkDue notes a message that comes before it was scheduled for.
func (s *stream) checkDue(d *fsm.Delivery) {
	id := idOf(d.Payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	if due, scheduled := s.due[id]; scheduled && time.Now().Before(due.Truncate(time.Millisecond)) {
		s.early = append(s.early, fmt.Sprintf("message %s came at %v, due at %v", id, time.Now(), due))
	}
}
