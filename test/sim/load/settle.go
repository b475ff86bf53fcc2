package load

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// locked is the answer to a request for messages.
type locked struct {
	code       fsm.Code
	deliveries []fsm.Delivery
}

// lockSome makes one request for messages.
func (l *Load) lockSome(c *client, p *Process, r *router.Receiver) (got locked, heard bool) {
	return ask(p, func(answer func(locked)) {
		r.Lock(1+c.rand.IntN(batchMax), 1<<20, lockWait, func(code fsm.Code, d []fsm.Delivery) { answer(locked{code, d}) })
	})
}

// settleAll records deliveries and settles each after a while. Their locks began at since or later.
func (l *Load) settleAll(c *client, p *Process, s *stream, from judge.Source, since time.Time, deliveries []fsm.Delivery) {
	deliveries = slices.DeleteFunc(deliveries, func(d fsm.Delivery) bool {
		return !time.Now().Before(lockedUntil(s, from, &d, since)) // too late: the lock may have ended before the answer came
	})
	l.operations.Add(int64(len(deliveries)))
	if s.relay != nil && from.At.ID == s.relay.At.ID {
		for len(deliveries) > 0 && c.think(context.Background(), thinkMean) && !p.HasEnded() {
			n := min(len(deliveries), 1+c.rand.IntN(transactionMax))
			l.moveOn(c, p, s, deliveries[:n])
			deliveries = deliveries[n:]
		}
		return
	}
	for i := range deliveries {
		d := &deliveries[i]
		s.CheckDue(idOf(d.Payload))
		s.CheckLife(idOf(d.Payload), d.Enqueued, from.At.Sub != fsm.MainQueue, since)
		failed := d.FailedDeliveries
		if s.redrives {
			failed = 0 // a redrive begins again
		}
		s.Add(history.Event{
			Kind: history.Delivered, ID: idOf(d.Payload), Entity: copyOf(from, d), Client: c.name, Sequence: int64(d.Lock.Sequence), EnqueuedSequence: int64(d.Topic),
			FailedDeliveries: failed, Asked: askedFor(from, since), LockedUntil: lockedUntil(s, from, d, since), Note: fmt.Sprintf("m%d, epoch %d", p.Member, d.Lock.Epoch),
		})
	}
	for i := range deliveries {
		if !c.think(context.Background(), thinkMean) || p.HasEnded() {
			return
		}
		if c.rand.IntN(50) == 0 && !s.HasSessions && l.sending.Err() == nil {
			l.renew(c, p, s, from, &deliveries[i])
		}
		l.settle(c, p, s, from, &deliveries[i])
	}
}

// askedFor returns when a message was asked for; zero for a receiver of a partitioned entity, which may have had it before.
func askedFor(from judge.Source, since time.Time) time.Time {
	if len(from.At.Shards) > 0 {
		return time.Time{}
	}
	return since
}

// lockedUntil returns until when a message is locked at least, whatever the clocks of the members show: its lock began
// at since or later. A receiver of a partitioned entity may have had the message before it was asked for it, and shows the end by wall time,
// which may be ahead.
func lockedUntil(s *stream, from judge.Source, d *fsm.Delivery, since time.Time) time.Time {
	until := since.Add(judge.LockSure)
	if shown := time.UnixMilli(int64(d.LockedUntil)).Add(-judge.ClockSlack - s.Clocks.Ahead(time.Now())); len(from.At.Shards) > 0 && shown.Before(until) {
		return shown
	}
	return until
}

// chooseVerb returns how a delivery is settled: most are completed, some returned or deferred.
func (l *Load) chooseVerb(c *client, s *stream, from judge.Source, id string) fsm.Verb {
	switch n := c.rand.IntN(100); {
	case from.At.Sub != fsm.MainQueue:
	case n < 6:
		return fsm.Abandon
	case n < 9:
		return fsm.Release
	case n < 11 && from.Name == "" && !s.HasSessions:
		return fsm.Defer
	case s.buries != nil && from.Name == "main" && s.buries(id):
		return fsm.DeadLetter
	case n < 12 && s.hasDeadLetters(), n < 30 && s.redrives && l.sending.Err() == nil:
		return fsm.DeadLetter
	}
	return fsm.Complete
}

// settle settles a delivery. It leaves a few until their locks end, but none in the end, when all must be received within serveWithin.
func (l *Load) settle(c *client, p *Process, s *stream, from judge.Source, d *fsm.Delivery) {
	id := idOf(d.Payload)
	settlement := fsm.Settlement{Lock: d.Lock, Verb: l.chooseVerb(c, s, from, id)}
	if settlement.Verb == fsm.Defer {
		s.noteDeferred(d.Lock.Sequence, true)
	}
	if c.rand.IntN(100) == 0 && from.At.Sub == fsm.MainQueue && !s.HasSessions && l.sending.Err() == nil { // releasing the session would end the lock
		if c.rand.IntN(4) != 0 {
			return
		}
		sleep(judge.LockDuration + time.Duration(c.rand.Int64N(int64(judge.LockDuration)))) // the settlement is too late
	}
	at := copyOf(from, d)
	s.Add(history.Event{Kind: history.SettleBegun, ID: id, Entity: at, Client: c.name, Note: fmt.Sprint(settlement.Verb)})
	code, heard := settle(p, from.At, settlement)
	kind := history.SettleFailed
	if heard && code == fsm.OK {
		l.operations.Add(1)
		kind = history.Returned
		if settlement.Verb == fsm.Complete || settlement.Verb == fsm.DeadLetter && s.buries != nil {
			kind = history.Completed
			s.noteDeferred(d.Lock.Sequence, false)
		}
	}
	s.Add(history.Event{Kind: kind, ID: id, Entity: at, Client: c.name, Note: note(p, code)})
}

// renew extends a lock and waits a little more than it lasted before.
func (l *Load) renew(c *client, p *Process, s *stream, from judge.Source, d *fsm.Delivery) {
	asked := time.Now()
	codes, heard := ask(p, func(answer func([]fsm.Code)) {
		p.Node.Router().Renew(from.At, []fsm.LockID{d.Lock}, func(codes []fsm.Code, _ []fsm.Instant) { answer(codes) })
	})
	if heard && codes[0] == fsm.OK {
		l.operations.Add(1)
		s.Add(history.Event{Kind: history.Renewed, ID: idOf(d.Payload), Entity: copyOf(from, d), Client: c.name, LockedUntil: asked.Add(judge.LockSure)})
		sleep(time.Duration(c.rand.Int64N(int64(judge.LockDuration / 2))))
	}
}
