package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
)

// sessionJudge watches who holds the sessions of a stream.
type sessionJudge struct {
	mu      sync.Mutex
	holders map[string]holder
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

// releasing is called before a client releases a session.
func (j *sessionJudge) releasing(session, client string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holders[session].client == client {
		delete(j.holders, session)
	}
}

// sessionAnswer is the answer to a request for a session.
type sessionAnswer struct {
	code     fsm.Code
	receiver *router.SessionReceiver
}

// receiveSession accepts a session and receives some of its messages.
func (l *load) receiveSession(c *client, p *process, s *stream, from source) {
	asked := time.Now()
	var name *string
	if c.rand.IntN(5) == 0 {
		named := fmt.Sprint(c.rand.IntN(sessionsOfStream))
		name = &named
	}
	got, heard := ask(p, func(answer func(sessionAnswer)) {
		p.node.Router().AcceptSession(from.at, name, false, lockWait, func(code fsm.Code, r *router.SessionReceiver) { answer(sessionAnswer{code, r}) })
	})
	until := asked.Add(lockSure)
	if !heard || got.code != fsm.OK || !time.Now().Before(until) {
		sleep(reconnectAfter)
		return
	}
	l.operations.Add(1)
	s.sessions.accepted(got.receiver.Name(), c.name, until)
	for range 3 {
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
