package fsm_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

// TestSettlementsShareTheirOutcome: a command holds the outcome of settlements that follow each other once.
func TestSettlementsShareTheirOutcome(t *testing.T) {
	t.Parallel()
	const reason = "the reason"
	poison := fsm.Settlement{Verb: fsm.DeadLetter, Reason: reason, Description: "d", Properties: []byte("p")}
	outcomes := []fsm.Settlement{poison, poison, poison, {Verb: fsm.Complete, Properties: []byte{}}, poison}
	for i := range outcomes {
		outcomes[i].Lock = fsm.LockID{Sequence: fsm.SequenceNumber(1 + i*300), Epoch: 1}
	}
	for _, c := range []fsm.Command{
		fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: outcomes},
		fsm.Transact{Settles: []fsm.SettleMessages{{Address: fsm.Address{Entity: 1}, Settlements: outcomes}}},
	} {
		encoded := fsm.AppendCommand(nil, fsm.Header{}, c)
		if n := bytes.Count(encoded, []byte(reason)); n != 2 {
			t.Errorf("%T: the reason is there %d times, want one for each of 2 runs", c, n)
		}
		_, got, err := fsm.DecodeCommand(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", c, diff)
		}
	}
	lock := poison.Lock
	for name, other := range map[string]fsm.Settlement{
		"verb":        {Lock: lock, Verb: fsm.Complete},
		"reason":      {Lock: lock, Verb: fsm.Defer, Reason: "r"},
		"description": {Lock: lock, Verb: fsm.Defer, Description: "d"},
		"time":        {Lock: lock, Verb: fsm.Defer, Until: 1},
		"properties":  {Lock: lock, Verb: fsm.Defer, Properties: []byte("p")},
	} {
		if one := (fsm.Settlement{Verb: fsm.Defer}); one.SameOutcome(&other) {
			t.Errorf("outcomes with another %s are taken for one", name)
		}
	}
}

// TestRunsOfSettlementsAreStrict: settlements have one encoding.
func TestRunsOfSettlementsAreStrict(t *testing.T) {
	t.Parallel()
	empty := fsm.AppendCommand(nil, fsm.Header{}, fsm.SettleMessages{Address: fsm.Address{Entity: 1}})
	const completes, locks = "\x01\x00\x00\x00\x00", "\x07\x01\x08\x01"
	for name, row := range map[string]struct {
		runs string
		ok   bool
	}{
		"one run":      {"\x02" + completes + "\x02" + locks, true},
		"split":        {"\x02" + completes + "\x01" + locks[:2] + completes + "\x01" + locks[2:], false},
		"two outcomes": {"\x02" + completes + "\x01" + locks[:2] + strings.Replace(completes, "\x01", "\x02", 1) + "\x01" + locks[2:], true},
		"too long":     {"\x02" + completes + "\x03" + locks + "\x09\x01", false},
		"empty run":    {"\x02" + completes + "\x00" + strings.Replace(completes, "\x01", "\x02", 1) + "\x02" + locks, false},
		"short":        {"\x02" + completes + "\x01" + locks, false},
	} {
		encoded := append(slices.Clone(empty[:len(empty)-1]), row.runs...)
		if _, _, err := fsm.DecodeCommand(encoded); (err == nil) != row.ok {
			t.Errorf("%s: decoded with error %v", name, err)
		}
		if _, err := fsm.VerifyCommand(encoded); (err == nil) != row.ok {
			t.Errorf("%s: verified with error %v", name, err)
		}
	}
}

// TestSharedOutcomeCountsForEachLock: one entry adds little more than 32 MiB of properties and reasons to messages, also if
// its command holds them once. The other settlements are busy and keep their locks.
func TestSharedOutcomeCountsForEachLock(t *testing.T) {
	t.Parallel()
	const messages, size, bytesMax = 400, 64<<10 + 2*16<<10, 32 << 20
	fitting := (bytesMax + size - 1) / size
	settle := func() (*between, fsm.SettleMessages) {
		b := newBetween(t)
		b.must(fsm.RaiseLevel{Level: fsm.FormatLevel})
		b.put(1, 1, nil)
		b.send(1, messages, fsm.Message{})
		c := fsm.SettleMessages{Address: fsm.Address{Entity: 1}}
		for _, d := range b.must(fsm.LockMessages{Address: c.Address, Max: messages, MaxBytes: 1 << 20}).Deliveries {
			c.Settlements = append(c.Settlements, fsm.Settlement{
				Lock: d.Lock, Verb: fsm.DeadLetter, Properties: make([]byte, 64<<10), Reason: strings.Repeat("r", 16<<10), Description: strings.Repeat("d", 16<<10),
			})
		}
		return b, c
	}
	b, c := settle()
	codes := b.must(c).Codes
	for i, code := range codes {
		want := fsm.OK
		if i >= fitting {
			want = fsm.ServerBusy
		}
		if code != want {
			t.Fatalf("settlement %d of %d: %v, want %v", i, len(codes), code, want)
		}
	}
	c.Settlements = c.Settlements[fitting:]
	if codes := b.must(c).Codes; slices.ContainsFunc(codes, func(code fsm.Code) bool { return code != fsm.OK }) {
		t.Errorf("in the next entry: %v", codes)
	}
	b, c = settle()
	if code := b.do(fsm.Transact{Settles: []fsm.SettleMessages{c}}).Code; code != fsm.InvalidArgument {
		t.Errorf("a transaction that adds more than an entry may: %v, want %v", code, fsm.InvalidArgument)
	}
	c.Settlements = c.Settlements[:fitting]
	b.must(fsm.Transact{Settles: []fsm.SettleMessages{c}})
}
