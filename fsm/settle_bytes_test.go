package fsm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestSettlingIsLimitedByBytes: settlements that change messages with large patches rewrite little more
// than rewriteBytesMax in one entry, in whichever queues they are; the others are busy and keep their
// locks. What changes no patches is not limited.
func TestSettlingIsLimitedByBytes(t *testing.T) {
	t.Parallel()
	const messages, size, bytesMax = 24, 900 << 10, 8 << 20
	patches := fsm.AppendPatches(nil, []fsm.Patch{{DeadLetter: true, Description: strings.Repeat("d", size)}})
	const entries = 3
	for _, verb := range []fsm.Verb{fsm.Abandon, fsm.Defer, fsm.DeadLetter} {
		b, locks := newPatched(t, messages, patches)
		took, done := 0, 0
		for left := locks; len(left) > 0; took++ {
			var rest []fsm.Settlement
			before := done
			for i, code := range b.must(changed(left, verb)).Codes {
				if code != fsm.OK && code != fsm.ServerBusy {
					t.Fatalf("%v", code)
				}
				if code == fsm.OK {
					done++
				} else {
					rest = append(rest, left[i])
				}
			}
			if n := (done - before) * size; done == before || n >= bytesMax+size {
				t.Fatalf("verb %d: an entry rewrote %d bytes", verb, n)
			}
			left = rest
		}
		if took != entries {
			t.Errorf("verb %d: %d entries, want %d", verb, took, entries)
		}
	}
}

// TestBusyEntryRefusesChangesOnly: when an entry has rewritten as much as it may, it refuses other
// changes, transactions with changes included, and completes and releases messages.
func TestBusyEntryRefusesChangesOnly(t *testing.T) {
	t.Parallel()
	const messages, size = 40, 900 << 10
	b, locks := newPatched(t, messages, fsm.AppendPatches(nil, []fsm.Patch{{DeadLetter: true, Description: strings.Repeat("d", size)}}))
	same := func(c fsm.Command) fsm.Result {
		b.env.Index--
		return b.do(c)
	}
	if codes := b.must(changed(locks[:12], fsm.Defer)).Codes; codes[9] != fsm.OK || codes[10] != fsm.ServerBusy || codes[11] != fsm.ServerBusy {
		t.Fatalf("codes %v", codes)
	}
	if codes := same(changed(locks[10:11], fsm.DeadLetter)).Codes; codes[0] != fsm.ServerBusy {
		t.Errorf("another command of the entry: %v", codes)
	}
	for _, verb := range []fsm.Verb{fsm.Complete, fsm.Release} {
		settle := changed(locks[10:11], verb)
		settle.Settlements[0].Properties = nil
		if codes := same(settle).Codes; codes[0] != fsm.OK {
			t.Errorf("verb %d: %v", verb, codes)
		}
		locks = slices.Delete(locks, 10, 11)
	}
	few := fsm.Transact{Settles: []fsm.SettleMessages{changed(locks[10:13], fsm.Defer)}}
	if code := same(few).Code; code != fsm.ServerBusy {
		t.Errorf("a transaction in the same entry: %v", code)
	}
	if code := b.do(few).Code; code != fsm.OK {
		t.Errorf("the transaction in an entry of its own: %v", code)
	}
	if code := b.do(fsm.Transact{Settles: []fsm.SettleMessages{changed(locks[13:25], fsm.Defer)}}).Code; code != fsm.InvalidArgument {
		t.Errorf("a transaction that changes more than an entry may: %v", code)
	}
}

// newPatched is a state machine with a queue of locked messages that have patches,
// and a settlement of each.
func newPatched(t *testing.T, messages int, patches []byte) (*between, []fsm.Settlement) {
	t.Helper()
	b := newBetween(t)
	b.put(1, 1, nil)
	for serial := range uint64(messages) {
		m := carried("x")
		m.Patches = patches
		b.must(transferOf(serial+1, m))
	}
	locked := b.must(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: uint32(messages), MaxBytes: 1 << 30}).Deliveries
	if len(locked) != messages {
		t.Fatalf("%d of %d messages are locked", len(locked), messages)
	}
	return b, fsm.SettleAll(locked, fsm.Defer)
}

// changed settles messages with a verb and changes a property.
func changed(settlements []fsm.Settlement, verb fsm.Verb) fsm.SettleMessages {
	c := fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: slices.Clone(settlements)}
	for i := range c.Settlements {
		c.Settlements[i].Verb, c.Settlements[i].Properties = verb, []byte("p")
	}
	return c
}

// A deferral that is the last delivery allowed adds a reason, and counts too.
func TestLastDefersAreLimitedByBytes(t *testing.T) {
	t.Parallel()
	const messages, size = 24, 900 << 10
	b, locks := newPatched(t, messages, fsm.AppendPatches(nil, []fsm.Patch{{DeadLetter: true, Description: strings.Repeat("d", size)}}))
	b.put(1, 2, func(s *fsm.EntitySettings) { s.MaxDeliveryCount = 1 })
	settle := changed(locks, fsm.Defer)
	for i := range settle.Settlements {
		settle.Settlements[i].Properties = nil
	}
	done := 0
	for _, code := range b.must(settle).Codes {
		if code == fsm.OK {
			done++
		}
	}
	if done != 10 {
		t.Errorf("an entry rewrote the patches of %d messages, want 10", done)
	}
}

// TestRedriveIsLimitedByBytes: the redrives of one entry rewrite little more than rewriteBytesMax, of dead letters with large
// patches. The answer, also when it is repeated, says from which number on to continue.
func TestRedriveIsLimitedByBytes(t *testing.T) {
	t.Parallel()
	const entries = 3
	b, locks := newPatched(t, patchedMessages, largePatches())
	for len(locks) > 0 {
		b.must(changed(locks[:min(8, len(locks))], fsm.DeadLetter))
		locks = locks[min(8, len(locks)):]
	}
	var numbers []fsm.SequenceNumber
	for n := range fsm.SequenceNumber(patchedMessages) {
		numbers = append(numbers, n+1)
	}
	took, serial := 0, uint64(0)
	for left := numbers; len(left) > 0; took++ {
		serial++
		h := fsm.Header{Incarnation: 5, Serial: serial, Low: serial}
		command := fsm.AppendCommand(nil, h, fsm.RedriveMessages{Entity: 1, Sequences: left})
		b.env.Index++
		res := b.q.Apply(oneTime(b.env), command)
		if n := res.Count * patchedSize; res.Count == 0 || n >= rewriteBytesMax+patchedSize {
			t.Fatalf("an entry rewrote %d bytes", n)
		}
		again, restored := b.q.Apply(oneTime(b.env), command), b.restored().q.Apply(oneTime(b.env), command)
		if again.Count != res.Count || again.Sequence != res.Sequence || restored.Count != res.Count || restored.Sequence != res.Sequence {
			t.Fatalf("the repeated answer is %+v, restored %+v, want %+v", again, restored, res)
		}
		// Another command of the same entry.
		if next := slices.Index(left, res.Sequence); next > 0 {
			left = left[next:]
		} else {
			left = nil
		}
		if len(left) > 0 {
			if res := b.q.Apply(oneTime(b.env), fsm.AppendCommand(nil, fsm.Header{}, fsm.RedriveMessages{Entity: 1, Sequences: left})); res.Count != 0 || res.Sequence != left[0] {
				t.Fatalf("the same entry redrives %+v", res)
			}
		}
	}
	if c := b.counts(1); took != entries || c.DeadLetter != 0 || c.Active != patchedMessages {
		t.Errorf("%d entries, want %d; in the end %+v", took, entries, c)
	}
}
