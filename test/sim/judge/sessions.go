package judge

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history/linear"
)

// LockDuration is how long the locks of all entities last. LockSure is how long one lasts at least after the request for it: the times of
// the machines are whole milliseconds.
const (
	LockDuration = 15 * time.Second
	LockSure     = LockDuration - time.Millisecond
)

// Sessions watches who holds the sessions of a stream.
type Sessions struct {
	mu      sync.Mutex
	holders map[string]Holder
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

func newSessions() *Sessions {
	return &Sessions{
		holders: make(map[string]Holder), states: make(map[string]sessionState),
		tokens: make(map[string]fsm.SessionToken), waiting: make(map[string]map[string]bool),
	}
}

// Holder is a client that holds a session at least until a time.
type Holder struct {
	Client string
	Token  fsm.SessionToken // zero: exclusively
	Until  time.Time

	since time.Time // when it heard that it holds the session
}

// takeOver is a lock that was taken over while a former holder had no answer to a request for messages: what is locked
// for the former holder arrives after newer messages.
type takeOver struct {
	session      string
	asked, heard time.Time
}

// Claim returns the token of a lock that the caller tries to take over; zero: there is none.
func (j *Sessions) Claim(session string) fsm.SessionToken {
	j.mu.Lock()
	defer j.mu.Unlock()
	token := j.tokens[session]
	delete(j.tokens, session)
	return token
}

// Accepted is called when a client hears that it holds a session for which it asked at a time, with the token of its lock.
func (j *Sessions) Accepted(session string, h Holder, asked time.Time, isTakeOver bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.since = time.Now()
	before, held := j.holders[session]
	if held && h.since.Before(before.Until) && (!isTakeOver || before.Token != h.Token) {
		j.found = append(j.found, fmt.Sprintf("session %s: %s accepted it at %v, and %s holds it until %v", session, h.Client, h.since, before.Client, before.Until))
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
	j.record(linear.SessionRequest{Kind: kind, Session: session, Client: h.Client, Begun: asked, Ended: h.since, Until: h.Until})
	j.holders[session] = h
	delete(j.tokens, session)
	if h.Token != (fsm.SessionToken{}) {
		j.tokens[session] = h.Token
	}
}

// Note records a request of a client for the state of a session.
func (j *Sessions) Note(q linear.SessionRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(q)
}

// record records a request. Called with mu held.
func (j *Sessions) record(q linear.SessionRequest) {
	if !j.restored {
		j.requests = append(j.requests, q)
	}
}

// Performed is called when a request under the lock of a session, which a client made at a time, was performed.
func (j *Sessions) Performed(what, session, client string, asked time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(linear.SessionRequest{Kind: linear.Use, Session: session, Client: client, Begun: asked, Ended: time.Now()})
	if h, held := j.holders[session]; held && h.Client != client && h.since.Before(asked) {
		j.found = append(j.found, fmt.Sprintf("session %s: %s of %s at %v was performed, and %s holds it since %v", session, what, client, asked, h.Client, h.since))
	}
}

// Asks is called before a client asks for messages of a session.
func (j *Sessions) Asks(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.waiting[session] == nil {
		j.waiting[session] = make(map[string]bool)
	}
	j.waiting[session][client] = true
}

// Answered is called when a client has heard which messages of a session it got.
func (j *Sessions) Answered(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.waiting[session], client)
}

// overtakes reports whether a message of a session may arrive at a time before one whose sending began at another time.
func (j *Sessions) overtakes(session string, arrived, begun time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.takeOvers, func(t takeOver) bool {
		return t.session == session && !arrived.Before(t.asked) && !begun.After(t.heard)
	})
}

// forgetLocks is called when the locks of a cluster may no longer be those that clients know.
func (j *Sessions) forgetLocks() {
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

// Releasing is called before a client, or its gateway, releases a session.
func (j *Sessions) Releasing(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(linear.SessionRequest{Kind: linear.Release, Session: session, Client: client, Begun: time.Now()})
	if j.holders[session].Client == client {
		delete(j.holders, session)
	}
}

// sessionState is what the clients know of the state of a session: holders set it to rising numbers.
type sessionState struct {
	confirmed int // the newest number that was confirmed
	begun     int // the newest number that anybody has tried to set
}

// Renewed is called when a client hears that it has extended a session.
func (j *Sessions) Renewed(session, client string, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(linear.SessionRequest{Kind: linear.Renew, Session: session, Client: client, Begun: until.Add(-LockSure), Ended: time.Now(), Until: until})
	if h := j.holders[session]; h.Client == client {
		h.Until = until
		j.holders[session] = h
	}
}

// ConfirmedState returns the newest state of a session that was confirmed.
func (j *Sessions) ConfirmedState(session string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.states[session].confirmed
}

// CheckState compares the state that a holder reads with what was set before, and returns the next number. confirmed is
// what had been confirmed before the holder asked.
func (j *Sessions) CheckState(session string, confirmed int, state []byte) (next int) {
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

// StateSet is called when a holder hears that a state is set.
func (j *Sessions) StateSet(session string, number int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := j.states[session]
	known.confirmed = max(known.confirmed, number)
	j.states[session] = known
}
