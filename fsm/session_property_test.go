package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
)

// theQueue is the entity with sessions of these histories.
const theQueue fsm.EntityID = 9

// inSession is a message as the model of sessions knows it.
type inSession struct {
	n        fsm.SequenceNumber
	state    fsm.MessageState
	attempts uint32
	epoch    uint32
	due      fsm.Instant // Scheduled
}

// modelSession is a session of the model: everything in plain lists.
type modelSession struct {
	main  []*inSession
	dead  []*inSession
	epoch uint64
	until fsm.Instant // in serving time
	token fsm.SessionToken
	state []byte
	set   bool
}

func (s *modelSession) oldest() fsm.SequenceNumber {
	for _, m := range s.main {
		if m.state == fsm.Ready {
			return m.n
		}
	}
	return 0
}

// sessionHistory draws commands about sessions, and applies them to a replica, to one that
// is restored every now and then, and to the model.
type sessionHistory struct {
	t        *rapid.T
	a, b     *replica
	env      fsm.Env
	twoTimes bool // there are outages
	last     fsm.SequenceNumber
	grants   uint64
	sessions map[string]*modelSession
	locks    []fsm.SessionLock // every grant there was
	taken    []fsm.LockID
}

// onWall returns a serving time as clients see it, 0 for 0.
func (h *sessionHistory) onWall(at fsm.Instant) fsm.Instant {
	if at == 0 {
		return 0
	}
	return at + h.env.Now - h.env.Serving
}

func (h *sessionHistory) do(c fsm.Command) fsm.Result {
	h.env.Index++
	command := fsm.AppendCommand(nil, fsm.Header{}, c)
	if _, back, err := fsm.DecodeCommand(command); err != nil {
		h.t.Fatalf("%T %v: %v", c, back, err)
	}
	res := h.a.q.Apply(oneTime(h.env), command)
	if other := h.b.q.Apply(oneTime(h.env), command); cmp.Diff(h.a.show(res), h.b.show(other)) != "" || res.Session != other.Session {
		h.t.Fatalf("%T: one replica answers %+v, the other %+v", c, res, other)
	}
	return res
}

func (h *sessionHistory) name() string {
	return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(h.t, "session")
}

func (h *sessionHistory) open(name string) *modelSession {
	s := h.sessions[name]
	if s == nil {
		s = &modelSession{}
		h.sessions[name] = s
	}
	return s
}

// lock draws a lock, mostly a current one.
func (h *sessionHistory) lock() fsm.SessionLock {
	if len(h.locks) == 0 {
		return fsm.SessionLock{ID: "a", Epoch: 99}
	}
	return h.locks[len(h.locks)-1-rapid.IntRange(0, min(5, len(h.locks)-1)).Draw(h.t, "age")]
}

func (h *sessionHistory) holds(l fsm.SessionLock) *modelSession {
	if s := h.sessions[l.ID]; s != nil && s.epoch == l.Epoch && l.Epoch != 0 {
		return s
	}
	return nil
}

func (h *sessionHistory) want(what string, got, want any) {
	if d := cmp.Diff(want, got); d != "" {
		h.t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func (h *sessionHistory) send(*rapid.T) {
	var c fsm.SendMessages
	c.Entity = theQueue
	for range rapid.IntRange(1, 3).Draw(h.t, "count") {
		name := h.name()
		m := fsm.Message{Session: name, HasSession: true, Payload: fmt.Appendf(nil, "%s %d", name, h.last)}
		h.last++
		x := &inSession{n: h.last, state: fsm.Ready}
		if rapid.IntRange(0, 5).Draw(h.t, "later") == 0 {
			m.EnqueueAt = h.env.Now + 700
			x.state, x.due = fsm.Scheduled, m.EnqueueAt
		}
		c.Messages = append(c.Messages, m)
		s := h.open(name)
		s.main = append(s.main, x)
	}
	h.want("send", h.do(c).Code, fsm.OK)
}

func (h *sessionHistory) sendNowhere(*rapid.T) {
	h.want("send without session", h.do(fsm.SendMessages{Entity: theQueue, Messages: []fsm.Message{{}}}).Code, fsm.NotAllowed)
}

// token draws the token of a lock, zero for one that is exclusive.
func (h *sessionHistory) token() (token fsm.SessionToken) {
	token[0] = rapid.ByteRange(0, 2).Draw(h.t, "token")
	return token
}

func (h *sessionHistory) accept(*rapid.T) {
	c := fsm.AcceptSession{Entity: theQueue, Named: rapid.Bool().Draw(h.t, "named"), Token: h.token()}
	var s *modelSession
	if c.Named {
		c.ID = h.name()
		s = h.open(c.ID)
	} else {
		first := fsm.SequenceNumber(0)
		for name, x := range h.sessions {
			if n := x.oldest(); x.epoch == 0 && n != 0 && (first == 0 || n < first) {
				first, s, c.ID = n, x, name
			}
		}
	}
	name := c.ID
	if !c.Named {
		c.ID = ""
	}
	res := h.do(c)
	switch {
	case s == nil:
		h.want("accept nothing", res.Session, fsm.SessionLock{})
	case s.epoch != 0:
		h.want("accept what is held", res.Code, fsm.SessionCannotBeLocked)
	default:
		h.granted(name, s, c.Token, res)
	}
}

// granted is a new lock of a session.
func (h *sessionHistory) granted(name string, s *modelSession, token fsm.SessionToken, res fsm.Result) {
	h.grants++
	s.epoch, s.until, s.token = h.grants, h.env.Serving+5000, token
	l := fsm.SessionLock{ID: name, Epoch: h.grants}
	h.want("accept", res.Session, l)
	h.want("until", res.Untils, []fsm.Instant{h.onWall(s.until)})
	h.locks = append(h.locks, l)
}

// takeOver ends one lock and begins another one; what is locked stays locked.
func (h *sessionHistory) takeOver(*rapid.T) {
	c := fsm.AcceptSession{Entity: theQueue, Named: true, ID: h.name(), Token: h.token(), TakeOver: true}
	if c.Token == (fsm.SessionToken{}) {
		return
	}
	res, s := h.do(c), h.sessions[c.ID]
	switch {
	case s == nil || s.epoch == 0:
		h.want("take over what is not held", res.Code, fsm.SessionLockLost)
	case s.token != c.Token:
		h.want("take over with another token", res.Code, fsm.SessionCannotBeLocked)
	default:
		h.granted(c.ID, s, c.Token, res)
	}
}

func (h *sessionHistory) receive(*rapid.T) {
	l := h.lock()
	res := h.do(fsm.LockMessages{Address: fsm.Address{Entity: theQueue}, Max: uint32(rapid.IntRange(1, 3).Draw(h.t, "max")), MaxBytes: 1 << 20, Session: l})
	s := h.holds(l)
	if s == nil {
		h.want("lock without the session", res.Code, fsm.SessionLockLost)
		return
	}
	for _, d := range res.Deliveries {
		i := slices.IndexFunc(s.main, func(m *inSession) bool { return m.state == fsm.Ready })
		if i < 0 {
			h.t.Fatalf("message %d is given, none is ready", d.Lock.Sequence)
		}
		m := s.main[i]
		m.epoch++
		m.state = fsm.Locked
		h.want("delivery", []any{d.Lock, d.LockedUntil, d.FailedDeliveries}, []any{fsm.LockID{Sequence: m.n, Epoch: m.epoch}, h.onWall(s.until), m.attempts})
		h.taken = append(h.taken, d.Lock)
	}
	if len(res.Deliveries) == 0 && s.oldest() != 0 {
		h.t.Fatal("nothing is given, something is ready")
	}
}

func (h *sessionHistory) find(n fsm.SequenceNumber) (*modelSession, *inSession) {
	for _, s := range h.sessions {
		for _, m := range s.main {
			if m.n == n {
				return s, m
			}
		}
	}
	return nil, nil
}

func (h *sessionHistory) settle(*rapid.T) {
	if len(h.taken) == 0 {
		return
	}
	l := h.taken[len(h.taken)-1-rapid.IntRange(0, min(8, len(h.taken)-1)).Draw(h.t, "age")]
	verb := rapid.SampledFrom([]fsm.Verb{fsm.Complete, fsm.Complete, fsm.Abandon, fsm.Release, fsm.Defer, fsm.DeadLetter}).Draw(h.t, "verb")
	res := h.do(fsm.SettleMessages{Address: fsm.Address{Entity: theQueue}, Settlements: []fsm.Settlement{{Lock: l, Verb: verb}}})
	s, m := h.find(l.Sequence)
	if m == nil || m.state != fsm.Locked || m.epoch != l.Epoch {
		h.want("settle late", res.Codes, []fsm.Code{fsm.MessageLockLost})
		return
	}
	h.want("settle", res.Codes, []fsm.Code{fsm.OK})
	switch verb {
	case fsm.Complete:
		s.drop(m)
	case fsm.Abandon:
		s.back(m, true)
	case fsm.Release:
		s.back(m, false)
	case fsm.Defer:
		m.state = fsm.Deferred
	case fsm.DeadLetter:
		s.bury(m)
	}
}

func (s *modelSession) drop(m *inSession) {
	s.main = slices.DeleteFunc(s.main, func(x *inSession) bool { return x == m })
}

func (s *modelSession) bury(m *inSession) {
	s.drop(m)
	m.state = fsm.Ready
	s.dead = append(s.dead, m)
}

func (s *modelSession) back(m *inSession, failed bool) {
	if failed {
		m.attempts++
	}
	if m.state = fsm.Ready; failed && m.attempts >= 3 {
		s.bury(m)
	}
}

func (s *modelSession) end(failed bool) {
	s.epoch, s.until, s.token = 0, 0, fsm.SessionToken{}
	for _, m := range slices.Clone(s.main) {
		if m.state == fsm.Locked {
			s.back(m, failed)
		}
	}
}

func (h *sessionHistory) renew(*rapid.T) {
	l := h.lock()
	res := h.do(fsm.RenewSession{Entity: theQueue, Lock: l})
	if s := h.holds(l); s != nil {
		s.until = h.env.Serving + 5000
		h.want("renew", res.Untils, []fsm.Instant{h.onWall(s.until)})
	} else {
		h.want("renew late", res.Code, fsm.SessionLockLost)
	}
}

func (h *sessionHistory) release(*rapid.T) {
	l := h.lock()
	h.do(fsm.ReleaseSession{Entity: theQueue, Lock: l})
	if s := h.holds(l); s != nil {
		s.end(false)
	}
}

func (h *sessionHistory) keep(*rapid.T) {
	l, c := h.lock(), fsm.SetSessionState{Entity: theQueue}
	c.Lock = l
	switch rapid.IntRange(0, 2).Draw(h.t, "state") {
	case 0:
		c.Clear = true
	case 1:
		c.State = fmt.Appendf(nil, "state %d", h.env.Index)
	}
	res := h.do(c)
	if s := h.holds(l); s != nil {
		s.state, s.set = c.State, !c.Clear
		h.want("set state", res.Code, fsm.OK)
	} else {
		h.want("set state late", res.Code, fsm.SessionLockLost)
	}
}

func (h *sessionHistory) redrive(*rapid.T) {
	for name, s := range h.sessions {
		if len(s.dead) == 0 {
			continue
		}
		m := s.dead[0]
		res := h.do(fsm.RedriveMessages{Entity: theQueue, Sequences: []fsm.SequenceNumber{m.n}})
		h.want("redrive to "+name, res.Count, uint64(1))
		s.dead = s.dead[1:]
		m.attempts = 0
		i, _ := slices.BinarySearchFunc(s.main, m.n, func(x *inSession, n fsm.SequenceNumber) int { return int(x.n) - int(n) })
		s.main = slices.Insert(s.main, i, m)
		return // whichever it was: the model agrees with it
	}
}

// pass advances the time and processes what is due, earliest first, as the state machine does.
func (h *sessionHistory) pass(*rapid.T) {
	ms := fsm.Instant(rapid.SampledFrom([]int{1, 300, 1000, 5000}).Draw(h.t, "time"))
	h.env.Now += ms
	if !h.twoTimes || rapid.IntRange(0, 3).Draw(h.t, "outage") > 0 {
		h.env.Serving += ms
	}
	h.do(fsm.Pulse{})
	for {
		var first func()
		when := h.env.Now + 1
		order := fsm.SequenceNumber(0)
		for _, s := range h.sessions {
			if s.epoch != 0 && h.onWall(s.until) < when {
				when, order, first = h.onWall(s.until), 0, func() { s.end(true) }
			}
			for _, m := range s.main {
				if m.state == fsm.Scheduled && (m.due < when || m.due == when && first != nil && order != 0 && m.n < order) {
					when, order = m.due, m.n
					first = func() {
						s.drop(m)
						h.last++
						s.main = append(s.main, &inSession{n: h.last, state: fsm.Ready})
					}
				}
			}
		}
		if first == nil {
			return
		}
		first()
	}
}

func (h *sessionHistory) restore(*rapid.T) { h.b = h.b.restored() }

// Check compares the results of all queries.
func (h *sessionHistory) Check(*rapid.T) {
	if a, b := h.a.q.Digest(), h.b.q.Digest(); a != b {
		h.t.Fatalf("digests %x and %x", a, b)
	}
	list, ok := h.a.q.Sessions(theQueue, 0, 0, 100)
	if !ok {
		h.t.Fatal("no sessions")
	}
	got := map[string]fsm.Session{}
	for _, s := range list {
		got[s.ID] = s
	}
	available, used := uint64(0), uint64(0)
	for name, s := range h.sessions {
		ready := uint64(0)
		var all []fsm.SequenceNumber
		for _, m := range s.main {
			all = append(all, m.n)
			if m.state == fsm.Ready {
				ready++
			}
		}
		if ready > 0 && s.epoch == 0 {
			available++
		}
		if len(s.main)+len(s.dead) > 0 || s.epoch != 0 || s.set {
			used++
		}
		x, listed := got[name]
		if listed != (len(s.main) > 0 || s.set) || listed && (x.Messages != uint64(len(s.main)) || x.Ready != ready || x.Until != h.onWall(s.until) || x.Bytes != uint64(len(s.state))) {
			h.t.Fatalf("session %q is listed as %+v (%v), with %d messages, %d ready, until %d", name, x, listed, len(s.main), ready, s.until)
		}
		var peeked []fsm.SequenceNumber
		for _, d := range h.a.q.PeekSession(theQueue, name, 0, 1000) {
			peeked = append(peeked, d.Lock.Sequence)
		}
		h.want("peek of "+name, peeked, all)
		if s.epoch != 0 {
			at, set, code := h.a.q.SessionState(theQueue, fsm.SessionLock{ID: name, Epoch: s.epoch})
			if code != fsm.OK || set != s.set || set && string(h.a.bodies.Read(at)) != string(s.state) {
				h.t.Fatalf("state of %q: %v %v", name, set, code)
			}
		}
	}
	checkStored(h.t, h.a.q)
	counts, _ := h.a.q.Counts(theQueue)
	h.want("available and used", []uint64{h.a.q.AvailableSessions(theQueue), counts.Sessions}, []uint64{available, used})
}

// Any interleaving of senders, holders, ends of locks and restarts keeps the order within a
// session and one holder (docs/requirements.md#c5), on replicas that agree.
func TestSessionsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		h := &sessionHistory{
			t: rt, a: newReplica(t), b: newReplica(t), sessions: map[string]*modelSession{},
			env: fsm.Env{Now: 1_000_000, Serving: 1_000_000}, twoTimes: rapid.Bool().Draw(rt, "two times"),
		}
		settings := fsm.DefaultSettings()
		settings.RequiresSession, settings.LockDuration, settings.MaxDeliveryCount = true, 5000, 3
		h.do(fsm.PutEntity{Entity: theQueue, Version: 1, Settings: settings})
		rt.Repeat(map[string]func(*rapid.T){
			"send": h.send, "send again": h.send, "send without a session": h.sendNowhere, "accept": h.accept, "accept again": h.accept, "take over": h.takeOver,
			"receive": h.receive, "receive again": h.receive, "settle": h.settle, "settle again": h.settle, "renew": h.renew,
			"release": h.release, "state": h.keep, "redrive": h.redrive, "pass": h.pass, "restore": h.restore, "": h.Check,
		})
		h.do(fsm.DropEntity{Entity: theQueue})
		for range 100 {
			h.do(fsm.Pulse{})
		}
		if n := len(h.a.bodies.bodies); n != 0 {
			rt.Fatalf("%d bodies are still held", n)
		}
	})
}
