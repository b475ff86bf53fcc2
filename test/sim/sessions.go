package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history/linear"
)

// sessionJudge watches who holds the sessions of a stream.
type sessionJudge struct {
	mu      sync.Mutex
	holders map[string]holder
	states  map[string]sessionState
	// tokens of locks that another client may take over; who tries removes the token, so that the answers to two
	// take-overs never cross.
	tokens map[string]fsm.SessionToken
	// waiting are the clients, by session, that have asked for messages under a lock and heard no answer, since somebody
	// accepted the session and took no lock over.
	waiting   map[string]map[string]bool
	takeOvers []takeOver
	found     []string
	requests  []linear.SessionRequest // until the cluster is restored
	restored  bool
}

func newSessionJudge() *sessionJudge {
	return &sessionJudge{
		holders: make(map[string]holder), states: make(map[string]sessionState),
		tokens: make(map[string]fsm.SessionToken), waiting: make(map[string]map[string]bool),
	}
}

// holder is a client that holds a session at least until a time.
type holder struct {
	client string
	token  fsm.SessionToken // zero: exclusively
	since  time.Time        // when it heard that it holds the session
	until  time.Time
}

// takeOver is a lock that was taken over while a former holder had no answer to a request for messages: what is locked
// for the former holder arrives after newer messages.
type takeOver struct {
	session      string
	asked, heard time.Time
}

// claim returns the token of a lock that the caller tries to take over; zero: there is none.
func (j *sessionJudge) claim(session string) fsm.SessionToken {
	j.mu.Lock()
	defer j.mu.Unlock()
	token := j.tokens[session]
	delete(j.tokens, session)
	return token
}

// accepted is called when a client hears that it holds a session for which it asked at a time, with the token of its lock.
func (j *sessionJudge) accepted(session string, h holder, asked time.Time, isTakeOver bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.since = time.Now()
	before, held := j.holders[session]
	if held && h.since.Before(before.until) && (!isTakeOver || before.token != h.token) {
		j.found = append(j.found, fmt.Sprintf("session %s: %s accepted it at %v, and %s holds it until %v", session, h.client, h.since, before.client, before.until))
	}
	switch {
	case !isTakeOver:
		delete(j.waiting, session)
	case len(j.waiting[session]) > 0:
		j.takeOvers = append(j.takeOvers, takeOver{session, asked, h.since})
	}
	kind := linear.Accept
	if isTakeOver {
		kind = linear.TakeOver
	}
	j.record(linear.SessionRequest{Kind: kind, Session: session, Client: h.client, Begun: asked, Ended: h.since, Until: h.until})
	j.holders[session] = h
	delete(j.tokens, session)
	if h.token != (fsm.SessionToken{}) {
		j.tokens[session] = h.token
	}
}

// note records a request of a client for the state of a session.
func (j *sessionJudge) note(q linear.SessionRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(q)
}

// record records a request. Called with mu held.
func (j *sessionJudge) record(q linear.SessionRequest) {
	if !j.restored {
		j.requests = append(j.requests, q)
	}
}

// performed is called when a request under the lock of a session, which a client made at a time, was performed.
func (j *sessionJudge) performed(what, session, client string, asked time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(linear.SessionRequest{Kind: linear.Use, Session: session, Client: client, Begun: asked, Ended: time.Now()})
	if h, held := j.holders[session]; held && h.client != client && h.since.Before(asked) {
		j.found = append(j.found, fmt.Sprintf("session %s: %s of %s at %v was performed, and %s holds it since %v", session, what, client, asked, h.client, h.since))
	}
}

// asks is called before a client asks for messages of a session.
func (j *sessionJudge) asks(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.waiting[session] == nil {
		j.waiting[session] = make(map[string]bool)
	}
	j.waiting[session][client] = true
}

// answered is called when a client has heard which messages of a session it got.
func (j *sessionJudge) answered(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.waiting[session], client)
}

// overtakes reports whether a message of a session may arrive at a time before one whose sending began at another time.
func (j *sessionJudge) overtakes(session string, arrived, begun time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.takeOvers, func(t takeOver) bool {
		return t.session == session && !arrived.Before(t.asked) && !begun.After(t.heard)
	})
}

// forgetLocks is called when the locks of a cluster may no longer be those that clients know.
func (j *sessionJudge) forgetLocks() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.holders)
	clear(j.tokens)
	clear(j.waiting)
	j.restored = true
	for session, known := range j.states {
		j.states[session] = sessionState{begun: known.begun}
	}
}

// releasing is called before a client, or its gateway, releases a session.
func (j *sessionJudge) releasing(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(linear.SessionRequest{Kind: linear.Release, Session: session, Client: client, Begun: time.Now()})
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
	j.record(linear.SessionRequest{Kind: linear.Renew, Session: session, Client: client, Begun: until.Add(-lockSure), Ended: time.Now(), Until: until})
	if h := j.holders[session]; h.client == client {
		h.until = until
		j.holders[session] = h
	}
}

// confirmedState returns the newest state of a session that was confirmed.
func (j *sessionJudge) confirmedState(session string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.states[session].confirmed
}

// checkState compares the state that a holder reads with what was set before, and returns the next number. confirmed is
// what had been confirmed before the holder asked.
func (j *sessionJudge) checkState(session string, confirmed int, state []byte) (next int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := j.states[session]
	got, _ := strconv.Atoi(string(state))
	if got < confirmed || got > known.begun {
		j.found = append(j.found, fmt.Sprintf("session %s has the state %q; %d was confirmed and %d begun", session, state, confirmed, known.begun))
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

// wantedSession returns which session a client asks for: some by name, some with a token, and some to take over.
func (l *load) wantedSession(c *client, s *stream) (wants fsm.AcceptSession) {
	if c.rand.IntN(3) == 0 {
		wants.Named, wants.ID = true, strconv.Itoa(c.rand.IntN(sessionsOfStream))
	}
	if wants.Named && l.sending.Err() == nil { // in the end, everything must be received soon
		wants.Token = s.sessions.claim(wants.ID)
		wants.TakeOver = wants.Token != fsm.SessionToken{}
	}
	if !wants.TakeOver && c.rand.IntN(2) == 0 {
		binary.BigEndian.PutUint64(wants.Token[:], c.rand.Uint64()|1)
	}
	return wants
}

// receiveSession accepts a session and receives some of its messages.
func (l *load) receiveSession(c *client, p *process, s *stream, from source) {
	asked := time.Now()
	wants := l.wantedSession(c, s)
	got, heard := ask(p, func(answer func(sessionAnswer)) {
		p.node.Router().AcceptSession(from.at, wants, false, lockWait, func(code fsm.Code, r *router.SessionReceiver) { answer(sessionAnswer{code, r}) })
	})
	until := asked.Add(lockSure)
	if !heard || got.code != fsm.OK || !time.Now().Before(until) {
		sleep(reconnectAfter)
		return
	}
	l.operations.Add(1)
	name := got.receiver.Name()
	s.sessions.accepted(name, holder{client: c.name, token: wants.Token, until: until}, asked, wants.TakeOver)
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
			s.sessions.performed("a renewal", name, c.name, asked)
			s.sessions.renewed(name, c.name, until)
		}
		if time.Now().Before(until.Add(-lockWait)) && !p.hasEnded() && !l.receiveOfSession(c, p, s, from, got.receiver, asked) {
			return // what it did not take comes before what it would get next. The lock ends by itself
		}
	}
	if wants.TakeOver || c.rand.IntN(10) == 0 {
		return // as a client that hangs: the lock ends by itself. A release would return what a former holder works on
	}
	s.sessions.releasing(name, c.name)
	_, _ = ask(p, func(answer func(bool)) { got.receiver.Release(func() { answer(true) }) })
}

// receiveOfSession is receiveSome for a session, whose lock may have been taken over. It returns false when messages may be
// locked for the client that it does not take.
func (l *load) receiveOfSession(c *client, p *process, s *stream, from source, held *router.SessionReceiver, since time.Time) bool {
	asked := time.Now()
	s.sessions.asks(held.Name(), c.name)
	got, heard := l.lockSome(c, p, held.Receiver)
	if !heard || !time.Now().Before(since.Add(lockSure)) {
		return false // too late: the locks may have ended
	}
	if got.code != fsm.OK {
		return false // a former leader may have locked messages for it before the lock of the session was lost
	}
	s.sessions.answered(held.Name(), c.name)
	if len(got.deliveries) > 0 {
		s.sessions.performed("a receive", held.Name(), c.name, asked)
		l.settleAll(c, p, s, from, since, got.deliveries)
	}
	return true
}

// changeState reads and sets the state of a session that is held, sometimes in a transaction.
func (l *load) changeState(c *client, p *process, s *stream, held *router.SessionReceiver) {
	type readState struct {
		state []byte
		err   error
	}
	asked, confirmed := time.Now(), s.sessions.confirmedState(held.Name())
	got, heard := await(p, func(ctx context.Context) readState {
		state, err := held.State(ctx)
		return readState{state, err}
	})
	if !heard || got.err != nil {
		return
	}
	s.sessions.performed("a read of the state", held.Name(), c.name, asked)
	read, _ := strconv.Atoi(string(got.state))
	s.sessions.note(linear.SessionRequest{Kind: linear.Read, Session: held.Name(), Client: c.name, Begun: asked, Ended: time.Now(), State: read})
	next := s.sessions.checkState(held.Name(), confirmed, got.state)
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
	s.sessions.note(write)
	if heard && err == nil {
		l.operations.Add(2)
		s.sessions.performed("a change of the state", held.Name(), c.name, asked)
		s.sessions.stateSet(held.Name(), next)
	}
}
