package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestSessionIsRemovedOnceWithItsLastMessage: a session whose last message expires while its
// messages are returned is removed once. It used to be removed twice: two sessions got its slot,
// the holder of one received the messages of the other, and a restored replica did not.
func TestSessionIsRemovedOnceWithItsLastMessage(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*between, fsm.SessionLock){
		"released": func(b *between, l fsm.SessionLock) {
			b.env.Now += 10
			b.must(fsm.ReleaseSession{Entity: 1, Lock: l})
		},
		"lost": func(b *between, _ fsm.SessionLock) {
			b.env.Now += 60_000
			b.must(fsm.Pulse{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBetween(t)
			b.put(1, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
			at := fsm.Address{Entity: 1}
			b.send(1, 2, fsm.Message{Session: "a", HasSession: true, TimeToLive: 10})
			held := b.must(fsm.AcceptSession{Entity: 1}).Session
			b.must(fsm.LockMessages{Address: at, Max: 2, MaxBytes: 100, Session: held})
			end(b, held)
			if c := b.counts(1); c.Active != 0 || c.Sessions != 0 {
				t.Fatalf("after the end: %+v", c)
			}
			twin := &between{replica: b.restored(), t: t, env: b.env}
			for _, m := range []*between{b, twin} {
				m.send(1, 1, fsm.Message{Session: "b", HasSession: true})
				m.send(1, 1, fsm.Message{Session: "c", HasSession: true})
				one := m.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "b"}).Session
				m.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "c"})
				got := m.must(fsm.LockMessages{Address: at, Max: 9, MaxBytes: 100, Session: one}).Deliveries
				if len(got) != 1 || m.counts(1).Sessions != 2 {
					t.Errorf("the holder of b got %d messages; %+v", len(got), m.counts(1))
				}
			}
			if b.q.Digest() != twin.q.Digest() {
				t.Error("a restored replica went another way")
			}
		})
	}
}
