package sim

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
)

// sessionJudge watches who holds the sessions of a stream.
type sessionJudge struct {
	mu      sync.Mutex
	holders map[string]holder
	states  map[string]sessionState
	found   []string
}

// holder is a client that holds a session at least until a time.
type holder struct {
	client string
	until  time.Time
}

// accepted is called when a client hears that it holds a session.
func (j *sessionJudge) accepted(session, client string, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h, held := j.holders[session]; held && time.Now().Before(h.until) {
		j.found = append(j.found, fmt.Sprintf("session %s: %s accepted it at %v, and %s holds it until %v", session, client, time.Now(), h.client, h.until))
	}
	j.holders[session] = holder{client, until}
}

// releasing is called before a client, or its gateway, releases a session.
func (j *sessionJudge) releasing(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holders[session].client == client {
		delete(j.holders, session)
	}
}

// sessionState is what the clients know of the state of a session: holders set it to rising numbers.
type sessionState struct {
	confirmed int // the newest number that was confirmed
	begun     int // the newest number that anybody has tried to set
}

// renewed is called when a client hears that it has extended a session.
func (j *sessionJudge) renewed(session, client string, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holders[session].client == client {
		j.holders[session] = holder{client, until}
	}
}

// checkState compares the state that a holder reads with what was set before, and returns the next number.
func (j *sessionJudge) checkState(session string, state []byte) (next int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := j.states[session]
	got, _ := strconv.Atoi(string(state))
	if got < known.confirmed || got > known.begun {
		j.found = append(j.found, fmt.Sprintf("session %s has the state %q; %d was confirmed and %d begun", session, state, known.confirmed, known.begun))
	}
	known.begun++
	j.states[session] = known
	return known.begun
}

// stateSet is called when a holder hears that a state is set.
func (j *sessionJudge) stateSet(session string, number int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := j.states[session]
	known.confirmed = max(known.confirmed, number)
	j.states[session] = known
}

// sessionAnswer is the answer to a request for a session.
type sessionAnswer struct {
	code     fsm.Code
	receiver *router.SessionReceiver
}

// receiveSession accepts a session and receives some of its messages.
func (l *load) receiveSession(c *client, p *process, s *stream, from source) {
	asked := time.Now()
	var wants fsm.AcceptSession
	if c.rand.IntN(5) == 0 {
		wants.Named, wants.ID = true, fmt.Sprint(c.rand.IntN(sessionsOfStream))
	}
	got, heard := ask(p, func(answer func(sessionAnswer)) {
		p.node.Router().AcceptSession(from.at, wants, false, lockWait, func(code fsm.Code, r *router.SessionReceiver) { answer(sessionAnswer{code, r}) })
	})
	until := asked.Add(lockSure)
	if !heard || got.code != fsm.OK || !time.Now().Before(until) {
		sleep(reconnectAfter)
		return
	}
	l.operations.Add(1)
	s.sessions.accepted(got.receiver.Name(), c.name, until)
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
			until = asked.Add(lockSure)
			s.sessions.renewed(got.receiver.Name(), c.name, until)
		}
		if time.Now().Before(until.Add(-lockWait)) && !p.hasEnded() {
			l.receiveSome(c, p, s, from, got.receiver.Receiver, asked)
		}
	}
	if c.rand.IntN(10) == 0 {
		return // as a client that hangs: the lock ends by itself
	}
	s.sessions.releasing(got.receiver.Name(), c.name)
	_, _ = ask(p, func(answer func(bool)) { got.receiver.Release(func() { answer(true) }) })
}

// changeState reads and sets the state of a session that is held, sometimes in a transaction.
func (l *load) changeState(c *client, p *process, s *stream, held *router.SessionReceiver) {
	type readState struct {
		state []byte
		err   error
	}
	got, heard := await(p, func(ctx context.Context) readState {
		state, err := held.State(ctx)
		return readState{state, err}
	})
	if !heard || got.err != nil {
		return
	}
	next := s.sessions.checkState(held.Name(), got.state)
	if c.rand.IntN(4) == 0 {
		l.refuseState(p, s, held)
	}
	state := []byte(strconv.Itoa(next))
	var err error
	if c.rand.IntN(2) == 0 {
		var code fsm.Code
		if code, heard = transact(p, fsm.Transaction{States: []fsm.StateAt{held.StateChange(state)}}); code != fsm.OK {
			err = code
		}
	} else {
		err, heard = await(p, func(ctx context.Context) error { return held.SetState(ctx, state) })
	}
	if heard && err == nil {
		l.operations.Add(2)
		s.sessions.stateSet(held.Name(), next)
	}
}
