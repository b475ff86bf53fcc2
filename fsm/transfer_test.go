package fsm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

// TestTransferRefusalsAreRemembered: each code a TransferMessages is refused with as a whole, and which
// of them are remembered.
func TestTransferRefusalsAreRemembered(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	change := func(f func(*fsm.TransferMessages)) fsm.TransferMessages {
		c := transferOf(1, carried("a"), carried("b"))
		f(&c)
		return c
	}
	before := b.q.Digest()
	for name, x := range map[string]struct {
		c    fsm.TransferMessages
		want fsm.Code
	}{
		"no entity":      {change(func(c *fsm.TransferMessages) { c.Entity = 2 }), fsm.EntityNotFound},
		"entity 0":       {change(func(c *fsm.TransferMessages) { c.Entity = 0 }), fsm.InvalidArgument},
		"no messages":    {change(func(c *fsm.TransferMessages) { c.Messages = nil }), fsm.InvalidArgument},
		"too many":       {change(func(c *fsm.TransferMessages) { c.Messages = make([]fsm.Transferred, 4097) }), fsm.InvalidArgument},
		"serial 0":       {change(func(c *fsm.TransferMessages) { c.Serial = 0 }), fsm.InvalidArgument},
		"from a catalog": {change(func(c *fsm.TransferMessages) { c.Source.Partition = 0 }), fsm.InvalidArgument},
		"from nowhere":   {change(func(c *fsm.TransferMessages) { c.Source.Address.Entity = 0 }), fsm.InvalidArgument},
		"sub-queue":      {change(func(c *fsm.TransferMessages) { c.Source.Address.Sub = fsm.TransferDeadLetterQueue }), fsm.InvalidArgument},
		"no hop":         {change(func(c *fsm.TransferMessages) { c.Messages[1].Hops = 0 }), fsm.InvalidArgument},
		"hops":           {change(func(c *fsm.TransferMessages) { c.Messages[1].Hops = 5 }), fsm.InvalidArgument},
		"id":             {change(func(c *fsm.TransferMessages) { c.Messages[1].ID = strings.Repeat("i", 513) }), fsm.InvalidArgument},
		"patches":        {change(func(c *fsm.TransferMessages) { c.Messages[1].Patches = []byte("?") }), fsm.InvalidArgument},
		"properties":     {change(func(c *fsm.TransferMessages) { c.Messages[1].Properties = []byte("?") }), fsm.InvalidArgument},
	} {
		if res := b.do(x.c); res.Code != x.want || res.Codes != nil {
			t.Errorf("%s: %v %v", name, res.Code, res.Codes)
		}
	}
	if b.q.Digest() != before {
		t.Error("a refused command changed the state")
	}
	b.put(1, 2, func(s *fsm.EntitySettings) { s.Status = fsm.SendDisabled })
	if res := b.do(transferOf(1, carried("a"))); res.Code != fsm.EntityDisabled {
		t.Errorf("disabled: %v", res.Code)
	}
	b.put(1, 3, nil)
	if res := b.do(transferOf(1, carried("a"))); res.Code != fsm.EntityDisabled || b.q.Messages() != 0 {
		t.Errorf("what the source has dead-lettered is taken after all: %v", res.Code)
	}
	b.must(transferOf(3, carried("a")))
	if res := b.do(transferOf(2, carried("b"))); res.Code != fsm.Stale || b.q.Messages() != 1 {
		t.Errorf("an old batch: %v", res.Code)
	}
}

// TestTransferChecksMessagesIndependently: one refused message does not affect the others, and the
// answer stays the same.
func TestTransferChecksMessagesIndependently(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) {
		s.MaxMessageBytes, s.MaxBytes, s.RequiresDuplicateDetection = 1<<20-1, 1<<20, true
	})
	named := func(id string, size int) fsm.Transferred {
		return fsm.Transferred{Message: fsm.Message{ID: id, Payload: make([]byte, size)}, Hops: 2}
	}
	heavy := func(id string, size int) fsm.Transferred {
		m := named(id, 1)
		p := fsm.Patch{Properties: make([]byte, 64)}
		p.Properties = make([]byte, 64+size-len(fsm.AppendPatches(nil, []fsm.Patch{p}))-2)
		m.Patches = fsm.AppendPatches(nil, []fsm.Patch{p})
		if len(m.Patches) != size {
			t.Fatalf("%d bytes of patches", len(m.Patches))
		}
		return m
	}
	c := transferOf(1,
		named("a", 1<<20+256), named("b", 1<<20-20), named("b", 1), named("c", 19), named("d", 2),
		heavy("e", 1<<20+1), heavy("f", 1<<20), named("c", 5), named("", 1),
	)
	want := []fsm.Code{
		fsm.MessageTooLarge, fsm.OK, fsm.OK, fsm.OK, fsm.QuotaExceeded,
		fsm.MessageTooLarge, fsm.OK, fsm.OK, fsm.QuotaExceeded,
	}
	for range 2 {
		if diff := cmp.Diff(want, b.must(c).Codes); diff != "" {
			t.Fatalf("codes (-want +got):\n%s", diff)
		}
		if b.q.Messages() != 3 || b.counts(1).Bytes != 1<<20 {
			t.Fatalf("%d messages, %+v", b.q.Messages(), b.counts(1))
		}
		b.replica = b.restored()
	}
	// What was refused is not remembered as sent.
	b.must(fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 10})
	if res := b.must(transferOf(2, named("d", 2), named("b", 1))); b.q.Messages() != 1 || res.Codes[0] != fsm.OK {
		t.Errorf("%d messages, %v", b.q.Messages(), res.Codes)
	}
}

// TestSilentSourcesAreForgotten: an entity remembers so many sources, and those that are silent
// for 30 days make room.
func TestSilentSourcesAreForgotten(t *testing.T) {
	t.Parallel()
	const sources = 10_000
	b := newBetween(t)
	b.put(1, 1, nil)
	c := transferOf(1, carried(""))
	for i := range sources {
		c.Source.Address.Entity = fsm.EntityID(i + 1)
		b.must(c)
	}
	c.Source.Address.Entity = sources + 1
	if res := b.do(c); res.Code != fsm.QuotaExceeded {
		t.Fatalf("one source more: %v", res.Code)
	}
	known := c
	known.Source.Address.Entity, known.Serial = 500, 2
	b.env.Now += 30*24*3600*1000 - 1
	b.must(known)
	if res := b.do(c); res.Code != fsm.QuotaExceeded {
		t.Fatalf("a little too early: %v", res.Code)
	}
	b.env.Now++
	b.must(c)
	known.Serial = 1
	if res := b.do(known); res.Code != fsm.Stale {
		t.Errorf("a source that is not silent is forgotten: %v", res.Code)
	}
	if b.replica = b.restored(); b.do(known).Code != fsm.Stale {
		t.Error("an image lacks it")
	}
}

// TestTransferIsActivity: an entity that messages are forwarded to is not idle (docs/requirements.md#e8).
func TestTransferIsActivity(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 300_000 })
	b.env.Now += 200_000
	b.must(transferOf(1, carried("")))
	b.env.Now += 299_999
	if b.must(fsm.Pulse{}); b.q.Entities() != 1 {
		t.Fatal("it is gone too early")
	}
	b.env.Now++
	if b.must(fsm.Pulse{}); b.q.Entities() != 0 {
		t.Error("it stays")
	}
}
