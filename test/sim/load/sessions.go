package load

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history/linear"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// sessionAnswer is the answer to a request for a session.
type sessionAnswer struct {
	code     fsm.Code
	receiver *router.SessionReceiver
}

// wantedSession returns which session a client asks for: some by name, some with a token, and some to take over.
func (l *Load) wantedSession(c *client, s *stream) (wants fsm.AcceptSession) {
	if c.rand.IntN(3) == 0 {
		wants.Named, wants.ID = true, strconv.Itoa(c.rand.IntN(sessionsOfStream))
	}
	if wants.Named && l.sending.Err() == nil { // in the end, everything must be received soon
		wants.Token = s.Sessions.Claim(wants.ID)
		wants.TakeOver = wants.Token != fsm.SessionToken{}
	}
	if !wants.TakeOver && c.rand.IntN(2) == 0 {
		binary.BigEndian.PutUint64(wants.Token[:], c.rand.Uint64()|1)
	}
	return wants
}

// receiveSession accepts a session and receives some of its messages.
func (l *Load) receiveSession(c *client, p *Process, s *stream, from judge.Source) {
	asked := time.Now()
	wants := l.wantedSession(c, s)
	got, heard := ask(p, func(answer func(sessionAnswer)) {
		p.Node.Router().AcceptSession(from.At, wants, false, lockWait, func(code fsm.Code, r *router.SessionReceiver) { answer(sessionAnswer{code, r}) })
	})
	until := asked.Add(judge.LockSure)
	if !heard || got.code != fsm.OK || !time.Now().Before(until) {
		sleep(reconnectAfter)
		return
	}
	l.operations.Add(1)
	name := got.receiver.Name()
	s.Sessions.Accepted(name, judge.Holder{Client: c.name, Token: wants.Token, Until: until}, asked, wants.TakeOver)
	if c.rand.IntN(3) == 0 {
		l.changeState(c, p, s, got.receiver)
	}
	for i := range 3 {
		if i == 1 && c.rand.IntN(5) == 0 {
			asked = time.Now()
			code, heard := ask(p, func(answer func(fsm.Code)) { got.receiver.Renew(func(code fsm.Code, _ fsm.Instant) { answer(code) }) })
			if !heard || code != fsm.OK {
				break
			}
			l.operations.Add(1)
			until = asked.Add(judge.LockSure)
			s.Sessions.Performed("a renewal", name, c.name, asked)
			s.Sessions.Renewed(name, c.name, until)
		}
		if time.Now().Before(until.Add(-lockWait)) && !p.HasEnded() && !l.receiveOfSession(c, p, s, from, got.receiver, asked) {
			return // what it did not take comes before what it would get next. The lock ends by itself
		}
	}
	if wants.TakeOver || c.rand.IntN(10) == 0 {
		return // as a client that hangs: the lock ends by itself. A release would return what a former holder works on
	}
	s.Sessions.Releasing(name, c.name)
	_, _ = ask(p, func(answer func(bool)) { got.receiver.Release(func() { answer(true) }) })
}

// receiveOfSession is receiveSome for a session, whose lock may have been taken over. It returns false when messages may be
// locked for the client that it does not take.
func (l *Load) receiveOfSession(c *client, p *Process, s *stream, from judge.Source, held *router.SessionReceiver, since time.Time) bool {
	asked := time.Now()
	s.Sessions.Asks(held.Name(), c.name)
	got, heard := l.lockSome(c, p, held.Receiver)
	if !heard || !time.Now().Before(since.Add(judge.LockSure)) {
		return false // too late: the locks may have ended
	}
	if got.code != fsm.OK {
		return false // a former leader may have locked messages for it before the lock of the session was lost
	}
	s.Sessions.Answered(held.Name(), c.name)
	if len(got.deliveries) > 0 {
		s.Sessions.Performed("a receive", held.Name(), c.name, asked)
		l.settleAll(c, p, s, from, since, got.deliveries)
	}
	return true
}

// changeState reads and sets the state of a session that is held, sometimes in a transaction.
func (l *Load) changeState(c *client, p *Process, s *stream, held *router.SessionReceiver) {
	type readState struct {
		state []byte
		err   error
	}
	asked, confirmed := time.Now(), s.Sessions.ConfirmedState(held.Name())
	got, heard := await(p, func(ctx context.Context) readState {
		state, err := held.State(ctx)
		return readState{state, err}
	})
	if !heard || got.err != nil {
		return
	}
	s.Sessions.Performed("a read of the state", held.Name(), c.name, asked)
	read, _ := strconv.Atoi(string(got.state))
	s.Sessions.Note(linear.SessionRequest{Kind: linear.Read, Session: held.Name(), Client: c.name, Begun: asked, Ended: time.Now(), State: read})
	next := s.Sessions.CheckState(held.Name(), confirmed, got.state)
	if c.rand.IntN(4) == 0 {
		l.refuseState(p, s, held)
	}
	state := []byte(strconv.Itoa(next))
	var err error
	asked = time.Now()
	if c.rand.IntN(2) == 0 {
		var code fsm.Code
		if code, heard = transact(p, fsm.Transaction{States: []fsm.StateAt{held.StateChange(state)}}); code != fsm.OK {
			err = code
		}
	} else {
		err, heard = await(p, func(ctx context.Context) error { return held.SetState(ctx, state) })
	}
	write := linear.SessionRequest{Kind: linear.Write, Session: held.Name(), Client: c.name, Begun: asked, State: next}
	if heard && err == nil {
		write.Ended = time.Now()
	}
	s.Sessions.Note(write)
	if heard && err == nil {
		l.operations.Add(2)
		s.Sessions.Performed("a change of the state", held.Name(), c.name, asked)
		s.Sessions.StateSet(held.Name(), next)
	}
}
