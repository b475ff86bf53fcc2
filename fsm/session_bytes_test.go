package fsm_test

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// Messages of these tests: their patches are as large as a few dozen properties make them.
const (
	patchedMessages  = 24
	patchedSize      = 900 << 10
	rewriteBytesMax  = 8 << 20
	patchesPerEntry  = (rewriteBytesMax + patchedSize - 1) / patchedSize
	pulsedBytesMax   = 4 << 20
	patchesPerPulse  = (pulsedBytesMax + patchedSize - 1) / patchedSize
	patchedLifeMilli = 40_000
)

func largePatches() []byte {
	return fsm.AppendPatches(nil, []fsm.Patch{{DeadLetter: true, Description: strings.Repeat("d", patchedSize)}})
}

// newPatchedSession is a state machine whose entity 1 has a session with messages that have
// large patches.
func newPatchedSession(t *testing.T, change func(*fsm.EntitySettings)) *between {
	t.Helper()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) {
		s.RequiresSession, s.DeadLetterOnExpiry = true, true
		change(s)
	})
	for serial := range uint64(patchedMessages) {
		m := carried("x")
		m.Patches, m.Session, m.HasSession = largePatches(), "s", true
		b.must(transferOf(serial+1, m))
	}
	return b
}

// TestEndOfSessionIsLimitedByBytes: a session whose messages have expired or had their last delivery ends at once for
// its holder, and the entry rewrites little more than rewriteBytesMax. The other messages are delivered to nobody,
// and the next pulses dead-letter them, also at a replica that was restored.
func TestEndOfSessionIsLimitedByBytes(t *testing.T) {
	t.Parallel()
	lose := func(b *between, _ fsm.SessionLock) { b.must(fsm.Pulse{}) }
	release := func(b *between, l fsm.SessionLock) { b.must(fsm.ReleaseSession{Entity: 1, Lock: l}) }
	for name, row := range map[string]struct {
		change func(*fsm.EntitySettings)
		end    func(*between, fsm.SessionLock)
		failed uint32
		reason string
	}{
		"released, messages expired": {func(s *fsm.EntitySettings) { s.DefaultTimeToLive = patchedLifeMilli }, release, 0, "TTLExpiredException"},
		"lost, messages expired":     {func(s *fsm.EntitySettings) { s.DefaultTimeToLive = patchedLifeMilli }, lose, 1, "TTLExpiredException"},
		"lost, last delivery":        {func(s *fsm.EntitySettings) { s.MaxDeliveryCount = 1 }, lose, 1, "MaxDeliveryCountExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newPatchedSession(t, row.change)
			held := b.must(fsm.AcceptSession{Entity: 1}).Session
			lock := fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: patchedMessages, MaxBytes: 1 << 30, Session: held}
			locked := b.must(lock).Deliveries
			b.env.Now += 60_000
			b.env.Serving = b.env.Now
			row.end(b, held)
			if dead := b.counts(1).DeadLetter; dead != patchesPerEntry {
				t.Fatalf("the entry dead-lettered %d messages, want %d", dead, patchesPerEntry)
			}
			if code := b.do(fsm.RenewSession{Entity: 1, Lock: held}).Code; code != fsm.SessionLockLost {
				t.Errorf("the holder renews its lock: %v", code)
			}
			if code := b.must(changed(fsm.SettleAll(locked[patchedMessages-1:], fsm.Complete), fsm.Complete)).Codes[0]; code != fsm.MessageLockLost {
				t.Errorf("the holder completes a message: %v", code)
			}
			lock.Session = b.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "s"}).Session
			twin := &between{replica: b.restored(), t: t, env: b.env}
			for _, m := range []*between{b, twin} {
				if got := m.must(lock).Deliveries; len(got) != 0 {
					t.Errorf("the next holder receives %d messages", len(got))
				}
				pulseUntilDead(m, patchesPerEntry)
			}
			if b.q.Digest() != twin.q.Digest() {
				t.Error("a restored replica went another way")
			}
			for _, d := range b.q.Peek(fsm.Address{Entity: 1, Sub: fsm.DeadLetterQueue}, 0, patchedMessages) {
				patches, err := fsm.DecodePatches(b.bodies.Read(d.Patch))
				if err != nil || patches[len(patches)-1].Reason != row.reason || d.FailedDeliveries != row.failed {
					t.Errorf("message %d: %d failed deliveries, %v", d.Lock.Sequence, d.FailedDeliveries, err)
				}
			}
		})
	}
}

// pulseUntilDead pulses until all messages are dead letters. Each pulse rewrites as much as it may.
func pulseUntilDead(b *between, before uint64) {
	b.t.Helper()
	for dead := before; dead < patchedMessages; {
		if at, due := firstDeadline(b.q); !due || at > b.env.Now {
			b.t.Fatal("no pulse is due")
		}
		b.must(fsm.Pulse{})
		was := dead
		if dead = b.counts(1).DeadLetter; dead == was || dead-was > patchesPerPulse {
			b.t.Fatalf("a pulse dead-lettered %d messages", dead-was)
		}
	}
	if c := b.counts(1); c.DeadLetter != patchedMessages || c.Active != 0 || c.Scheduled != 0 {
		b.t.Errorf("in the end: %+v", c)
	}
}

// TestExpiryIsLimitedByBytes: locks, fetches by number and purges of one entry dead-letter little more than
// rewriteBytesMax of expired messages, deliver none of the others, and purge none of them.
func TestExpiryIsLimitedByBytes(t *testing.T) {
	t.Parallel()
	at := fsm.Address{Entity: 1}
	var numbers []fsm.SequenceNumber
	for n := range fsm.SequenceNumber(patchedMessages) {
		numbers = append(numbers, n+1)
	}
	for name, command := range map[string]fsm.Command{
		"lock":  fsm.LockMessages{Address: at, Max: 2 * patchedMessages, MaxBytes: 1 << 30},
		"fetch": fsm.FetchDeferred{Address: at, Sequences: numbers},
		"purge": fsm.PurgeMessages{Address: at, Max: 2 * patchedMessages},
	} {
		b := newBetween(t)
		b.put(1, 1, func(s *fsm.EntitySettings) {
			s.DeadLetterOnExpiry, s.DefaultTimeToLive, s.LockDuration = true, patchedLifeMilli, 300_000
		})
		for serial := range uint64(patchedMessages) {
			m := carried("x")
			m.Patches = largePatches()
			b.must(transferOf(serial+1, m))
		}
		if name == "fetch" {
			locked := b.must(fsm.LockMessages{Address: at, Max: patchedMessages, MaxBytes: 1 << 30}).Deliveries
			b.must(fsm.SettleMessages{Address: at, Settlements: fsm.SettleAll(locked, fsm.Defer)})
		}
		b.env.Now += 60_000
		for range 2 { // commands of one entry
			if res := b.must(command); len(res.Deliveries) != 0 || res.Count != 0 {
				t.Errorf("%s: %d messages are delivered, %d purged", name, len(res.Deliveries), res.Count)
			}
			b.env.Index--
		}
		if dead := b.counts(1).DeadLetter; dead != patchesPerEntry {
			t.Errorf("%s: the entry dead-lettered %d messages, want %d", name, dead, patchesPerEntry)
		}
	}
}
