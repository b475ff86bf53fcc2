package fsm_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
)

// FuzzDecodeCommand: no bytes cause a panic; bytes that decode have one encoding, and PeekCommand
// agrees.
func FuzzDecodeCommand(f *testing.F) {
	for _, c := range examples() {
		f.Add(fsm.AppendCommand(nil, header, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, c, err := fsm.DecodeCommand(b)
		if verified := verify(b); (verified == nil) != (err == nil) {
			t.Errorf("decodes with %v, verifies with %v", err, verified)
		}
		info, peekErr := fsm.PeekCommand(b)
		if err != nil {
			return
		}
		if peekErr != nil || info.Header != h {
			t.Errorf("decodes but peeks as %+v, %v", info, peekErr)
		}
		if again := fsm.AppendCommand(nil, h, c); b[0] == again[0] && !bytes.Equal(again, b) {
			t.Errorf("%T has a second encoding\n%x\n%x", c, b, again)
		}
	})
}

// FuzzDecodeResult: no panic, one encoding.
func FuzzDecodeResult(f *testing.F) {
	f.Add(fsm.AppendResult(nil, fsm.Result{}))
	f.Add(fsm.AppendResult(nil, exampleResult()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if res, err := fsm.DecodeResult(b); err == nil && !bytes.Equal(fsm.AppendResult(nil, res), b) {
			t.Errorf("a second encoding: %x", b)
		}
	})
}

// FuzzDecodePatches: no panic, one encoding.
func FuzzDecodePatches(f *testing.F) {
	f.Add(fsm.AppendPatches(nil, examplePatches()))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := fsm.DecodePatches(b)
		if again := fsm.AppendPatches(nil, p); err == nil && len(b) > 0 && again[0] == b[0] && !bytes.Equal(again, b) {
			t.Errorf("a second encoding: %x", b)
		}
	})
}

// FuzzApply: a command that decodes never makes a state machine panic, and two replicas that apply
// it stay equal. A command that does not decode always panics.
func FuzzApply(f *testing.F) {
	for _, c := range examples() {
		f.Add(fsm.AppendCommand(nil, fsm.Header{}, c))
		f.Add(fsm.AppendCommand(nil, header, c))
	}
	for _, c := range slices.Concat(tryForwarding(), topicCommands(), tryTransactions()) {
		f.Add(fsm.AppendCommand(nil, fsm.Header{}, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, c, err := fsm.DecodeCommand(b)
		if err != nil {
			return
		}
		env := fsm.Env{Index: 9, Now: 1_800_000_000_000}
		if info, _ := fsm.PeekCommand(b); info.Kind >= fsm.KindFoundCluster {
			x, y := exampleCatalog(t), exampleCatalog(t)
			x.Apply(oneTime(env), b)
			y.Apply(oneTime(env), fsm.AppendCommand(nil, h, c))
			if x.Digest() != y.Digest() {
				t.Errorf("%T %+v forks replicas", c, c)
			}
			return
		}
		for _, example := range []func(testing.TB) *replica{exampleQueues, exampleTopics} {
			x, y := example(t), example(t)
			x.q.Apply(oneTime(env), b)
			y.q.Apply(oneTime(env), fsm.AppendCommand(nil, h, c))
			if x.q.Digest() != y.q.Digest() {
				t.Errorf("%T %+v forks replicas", c, c)
			}
		}
	})
}

// FuzzRestore: a tampered image with the right checksum is refused or makes a working state
// machine; Restore never panics.
func FuzzRestore(f *testing.F) {
	f.Add(exampleQueues(f).image())
	f.Add(exampleTopics(f).image())
	var other bytes.Buffer
	if _, err := exampleCatalog(f).Image().WriteTo(&other); err != nil {
		f.Fatal(err)
	}
	f.Add(other.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		b = sealed(b)
		q := queue.New(&discardBodies{})
		if err := q.Restore(bytes.NewReader(b)); err == nil {
			exercise(t, q)
		}
		restoresAndChecks(t, b)
		c := catalog.New()
		if err := c.Restore(bytes.NewReader(b)); err == nil {
			exerciseCatalog(t, c, b)
		}
	})
}

// exercise uses a restored state machine.
func exercise(t *testing.T, q *queue.Machine) {
	before := q.Digest()
	var b bytes.Buffer
	if _, err := q.Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	again := queue.New(&discardBodies{})
	if err := again.Restore(&b); err != nil || again.Digest() != before {
		t.Errorf("the image of a restored machine restores to another: %v", err)
	}
	env := fsm.Env{Index: 1, Now: 1 << 50}
	for range 3 {
		q.NextDeadline()
		q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
	}
	for id := fsm.EntityID(1); id < 10; id++ {
		q.Counts(id)
		q.Peek(fsm.Address{Entity: id}, 0, 100)
		q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, fsm.LockMessages{Address: fsm.Address{Entity: id}, Max: 4096, MaxBytes: 1 << 31}))
	}
	q.Outboxes()
	for _, c := range tryForwarding() {
		q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, c))
	}
	q.Effects()
}
