package fsm_test

import (
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// newShared is a state machine with queue 1, in which session "s" with three messages is locked with a token.
func newShared(t testing.TB) (b *between, held fsm.SessionLock, token fsm.SessionToken) {
	b = newBetween(t)
	b.env.Serving = b.env.Now
	b.put(1, 1, func(s *fsm.EntitySettings) { s.RequiresSession, s.LockDuration = true, 5000 })
	b.send(1, 3, fsm.Message{Payload: []byte("m"), Session: "s", HasSession: true})
	token = fsm.SessionToken{1, 15: 2}
	return b, b.must(fsm.AcceptSession{Entity: 1, Token: token}).Session, token
}

// TestTakeOverKeepsLockedMessages: a session lock that is taken over ends at once, and who waited under it is told. The
// messages that were locked under it are settled by their locks, and the new holder gets the others. They come back, as
// failed deliveries, when the new lock ends.
func TestTakeOverKeepsLockedMessages(t *testing.T) {
	t.Parallel()
	b, before, token := newShared(t)
	at := fsm.Address{Entity: 1}
	lock := func(l fsm.SessionLock) fsm.Result {
		return b.do(fsm.LockMessages{Address: at, Max: 2, MaxBytes: 100, Session: l})
	}
	taken := lock(before).Deliveries
	b.pass(4000)
	b.q.Effects()
	res := b.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "s", Token: token, TakeOver: true})
	after := res.Session
	if after.ID != "s" || after.Epoch == before.Epoch || res.Untils[0] != b.env.Now+5000 {
		t.Fatalf("taken over: %+v", res)
	}
	if effects := b.q.Effects(); !slices.ContainsFunc(effects, func(e fsm.Effect) bool { return e.Kind == fsm.EffectSessionLost && e.Session == "s" }) {
		t.Errorf("effects %+v", effects)
	}
	for _, c := range []fsm.Command{fsm.RenewSession{Entity: 1, Lock: before}, fsm.SetSessionState{Entity: 1, Lock: before}, fsm.LockMessages{Address: at, Max: 1, MaxBytes: 9, Session: before}} {
		if code := b.do(c).Code; code != fsm.SessionLockLost {
			t.Errorf("%T under the lock before: %v", c, code)
		}
	}
	b.must(fsm.ReleaseSession{Entity: 1, Lock: before}) // changes nothing
	if codes := b.must(settleIn(at, fsm.Complete, taken[0].Lock)).Codes; codes[0] != fsm.OK {
		t.Errorf("settlement of a message that was locked before: %v", codes)
	}
	if got := lock(after).Deliveries; len(got) != 1 || got[0].Lock.Sequence != 3 {
		t.Errorf("the new holder gets %+v", got)
	}
	b.pass(1500) // beyond the end of the lock before
	if got := b.counts(1); got.Locked != 2 {
		t.Fatalf("%+v", got)
	}
	b.pass(4000)
	if got := b.counts(1); got.Locked != 0 || got.Active != 2 {
		t.Fatalf("%+v", got)
	}
	again := lock(b.must(fsm.AcceptSession{Entity: 1}).Session).Deliveries
	if len(again) != 2 || again[0].Lock.Sequence != 2 || again[0].FailedDeliveries != 1 {
		t.Errorf("after the lock has ended: %+v", again)
	}
}

// TestTakeOverIsRefused lists what refuses a lock with a token, and a take-over.
func TestTakeOverIsRefused(t *testing.T) {
	t.Parallel()
	b, held, token := newShared(t)
	b.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "exclusive"})
	take := func(session string, token fsm.SessionToken) fsm.AcceptSession {
		return fsm.AcceptSession{Entity: 1, Named: true, ID: session, Token: token, TakeOver: true}
	}
	for name, row := range map[string]struct {
		command fsm.AcceptSession
		want    fsm.Code
	}{
		"another token":       {take("s", fsm.SessionToken{1}), fsm.SessionCannotBeLocked},
		"an exclusive lock":   {take("exclusive", token), fsm.SessionCannotBeLocked},
		"no lock":             {take("free", token), fsm.SessionLockLost},
		"no name":             {fsm.AcceptSession{Entity: 1, Token: token, TakeOver: true}, fsm.InvalidArgument},
		"held, not taken":     {fsm.AcceptSession{Entity: 1, Named: true, ID: "s", Token: token}, fsm.SessionCannotBeLocked},
		"held, for exclusive": {fsm.AcceptSession{Entity: 1, Named: true, ID: "s"}, fsm.SessionCannotBeLocked},
	} {
		if code := b.do(row.command).Code; code != row.want {
			t.Errorf("%s: %v, want %v", name, code, row.want)
		}
	}
	b.must(fsm.ReleaseSession{Entity: 1, Lock: held})
	if code := b.do(take("s", token)).Code; code != fsm.SessionLockLost {
		t.Errorf("after the lock was released: %v", code)
	}
}

// TestImagesHaveTokensOfSessions: a restored state machine knows the token of a lock.
func TestImagesHaveTokensOfSessions(t *testing.T) {
	t.Parallel()
	b, _, token := newShared(t)
	golden(t, "image-queues-tokens", b.image())
	restored := &between{replica: b.restored(), t: t, env: b.env}
	restored.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "s", Token: token, TakeOver: true})
}
