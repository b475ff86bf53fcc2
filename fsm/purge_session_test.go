package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// What a deletion within one session has to lock: the first ready messages of that session that are
// old enough, and nothing of other sessions.
func TestPurgeableInSession(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	b.put(2, 1, func(*fsm.EntitySettings) {})
	red := fsm.Message{Session: "red", HasSession: true}
	b.send(1, 2, red)
	b.send(1, 3, fsm.Message{Session: "blue", HasSession: true})
	b.env.Now += 1000
	border := b.env.Now
	b.send(1, 2, red)
	lock := b.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "red"}).Session
	b.must(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1, MaxBytes: 100, Session: lock})
	for _, c := range []struct {
		name    string
		entity  fsm.EntityID
		session string
		before  fsm.Instant
		most    int
		lock    fsm.SessionLock
		reach   int
		code    fsm.Code
	}{
		{"all that are ready", 1, "red", 0, 100, lock, 3, fsm.OK},
		{"at most", 1, "red", 0, 2, lock, 2, fsm.OK},
		{"by time", 1, "red", border, 100, lock, 1, fsm.OK},
		{"all too young", 1, "red", 1, 100, lock, 0, fsm.OK},
		{"nobody holds it", 1, "blue", 0, 100, fsm.SessionLock{}, 3, fsm.OK},
		{"no such session", 1, "green", 0, 100, fsm.SessionLock{}, 0, fsm.OK},
		{"no sessions", 2, "red", 0, 100, fsm.SessionLock{}, 0, fsm.NotAllowed},
		{"no such entity", 3, "red", 0, 100, fsm.SessionLock{}, 0, fsm.EntityNotFound},
	} {
		lock, reach, code := b.q.PurgeableInSession(c.entity, c.session, c.before, c.most)
		if lock != c.lock || reach != c.reach || code != c.code {
			t.Errorf("%s: lock %+v, reach %d, %v", c.name, lock, reach, code)
		}
	}
}

// A message that was redriven keeps its number and is younger than those behind it.
func TestPurgeableBehindRedriven(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	at := fsm.Address{Entity: 1}
	b.send(1, 2, fsm.Message{Session: "red", HasSession: true})
	lock := b.must(fsm.AcceptSession{Entity: 1}).Session
	got := b.must(fsm.LockMessages{Address: at, Max: 1, MaxBytes: 100, Session: lock}).Deliveries
	b.must(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: got[0].Lock, Verb: fsm.DeadLetter}}})
	b.env.Now += 1000
	border := b.env.Now
	b.must(fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{got[0].Lock.Sequence}})
	if _, reach, code := b.q.PurgeableInSession(1, "red", border, 100); reach != 2 || code != fsm.OK {
		t.Errorf("reach %d, %v: the second message is old enough", reach, code)
	}
	if _, reach, _ := b.q.PurgeableInSession(1, "red", border, 0); reach != 0 {
		t.Errorf("reach %d of none", reach)
	}
}

// A purge without a session leaves the messages of sessions that are held to their holders.
func TestPurgeSparesHeldSessions(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	b.send(1, 2, fsm.Message{Session: "red", HasSession: true})
	b.send(1, 3, fsm.Message{Session: "blue", HasSession: true})
	lock := b.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "red"}).Session
	at := fsm.Address{Entity: 1}
	if n := b.must(fsm.PurgeMessages{Address: at, Max: 100}).Count; n != 3 {
		t.Errorf("%d messages were purged, want the 3 of the session that nobody holds", n)
	}
	if got := b.must(fsm.LockMessages{Address: at, Max: 100, MaxBytes: 1 << 20, Session: lock}).Deliveries; len(got) != 2 {
		t.Errorf("the holder receives %d messages, want 2", len(got))
	}
}
