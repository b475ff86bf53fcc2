package inspect_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
)

// shardedBroker is a fakeBroker whose peeks end with the last shard of the entity.
type shardedBroker struct {
	*fakeBroker

	peeks int
}

func (b *shardedBroker) Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, most, maxBytes int) ([]fsm.Delivery, error) {
	b.peeks++
	all, err := b.fakeBroker.Peek(ctx, at, from, 1<<30, 1<<40)
	all = slices.DeleteFunc(all, func(d fsm.Delivery) bool { return d.Lock.Sequence.Shard() >= max(1, len(at.Shards)) })
	return all[:min(most, len(all))], err
}

// TestTailFollowsEveryShard checks that a tail begins at the end, sees each later message of each shard once, in pages, and only
// those of its selection.
func TestTailFollowsEveryShard(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{0, 3} {
		b := &shardedBroker{fakeBroker: &fakeBroker{at: fsm.EntityRef{Entity: fsm.Entity{ID: 7, Name: "orders", Shards: make([]fsm.Shard, shards)}}}}
		add := func(shard int, number fsm.SequenceNumber, body string) {
			b.add(t, `{"body":"`+body+`"}`, func(d *fsm.Delivery) { d.Lock.Sequence = fsm.SequenceNumber(shard)<<fsm.ShardShift + number })
		}
		last := max(shards, 1) - 1
		add(0, 1, "old")
		add(0, 1_000_000, "old")
		if last > 0 {
			add(last, 5, "old")
		}
		finder, place := inspect.New(b), inspect.Place{Name: "orders"}
		page, err := finder.Tail(t.Context(), place, &api.Selection{Contains: "new"}, nil, 10, 100)
		if err != nil || len(page.Messages) != 0 {
			t.Fatalf("the first page has %d messages (%v), want none", len(page.Messages), err)
		}
		if b.peeks > 60*max(shards, 1) {
			t.Errorf("the end was found with %d peeks, want at most 60 for each of %d shards", b.peeks, shards)
		}
		add(0, 1_000_001, "new one")
		add(last, 1_000_002, "other")
		add(last, 1_000_003, "new two")
		slices.SortFunc(b.messages, func(a, z fsm.Delivery) int { return int(a.Lock.Sequence) - int(z.Lock.Sequence) })
		var bodies []string
		for range 4 {
			cursor, err := inspect.ParseCursor(page.Cursor)
			if err != nil {
				t.Fatal(err)
			}
			if page, err = finder.Tail(t.Context(), place, &api.Selection{Contains: "new"}, cursor, 1, 100); err != nil {
				t.Fatal(err)
			}
			for i := range page.Messages {
				bodies = append(bodies, *page.Messages[i].Body)
			}
		}
		if !slices.Equal(bodies, []string{"new one", "new two"}) {
			t.Errorf("with %d shards the tail saw %q, want both new messages once", shards, bodies)
		}
	}
}

// TestTailRefusesWhatHasNoEnd refuses cursors that no answer gave, sub-queues and numbers.
func TestTailRefusesWhatHasNoEnd(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "1,", "-1", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"} {
		if _, err := inspect.ParseCursor(text); !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("the cursor %q gave %v, want InvalidArgument", text, err)
		}
	}
	finder := inspect.New(&fakeBroker{at: fsm.EntityRef{Entity: fsm.Entity{ID: 7, Name: "orders"}}})
	for name, s := range map[string]api.Selection{"dead letters": {SubQueue: "deadLetter"}, "numbers": {Sequences: []fsm.SequenceNumber{1}}} {
		if _, err := finder.Tail(t.Context(), inspect.Place{Name: "orders"}, &s, nil, 1, 1); !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("a tail of %s gave %v, want InvalidArgument", name, err)
		}
	}
	if _, err := finder.Tail(t.Context(), inspect.Place{Name: "orders"}, &api.Selection{}, inspect.Cursor{1, 2}, 1, 1); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("a cursor of two shards for one gave %v, want InvalidArgument", err)
	}
}
