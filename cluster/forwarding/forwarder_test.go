package forwarding

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// TestForwarderStopsForADeletedEntity: an entity that is not in the catalog uses no task slot and does
// not back off indefinitely; the next scan of the partition tries again.
func TestForwarderStopsForADeletedEntity(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.source.mu.Lock()
	x.source.boxes[fsm.Address{Entity: 2}] = &fakeBox{wants: "there"}
	x.source.mu.Unlock()
	x.deps.mu.Lock()
	x.deps.gone = map[fsm.EntityID]bool{2: true}
	x.deps.mu.Unlock()
	x.LeaderChanged(1, true)
	x.put(2, "lost")
	x.put(1, "kept")
	x.ended(t, 1, 1)
	x.idle(t)
	if n := x.Stats().Backoffs; n != 0 {
		t.Errorf("%d rests", n)
	}
}

// TestForwarderNeedsTwoLogEntriesPerBatch: one command ends a batch and takes the next.
func TestForwarderNeedsTwoLogEntriesPerBatch(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.source.boxes[fsm.Address{Entity: 1}].ready = texts(3 * forwardMessagesMax)
	x.LeaderChanged(1, true) // the forwarder finds them without an effect
	for _, code := range x.ended(t, 1, 3*forwardMessagesMax) {
		if code != fsm.OK {
			t.Fatal(code)
		}
	}
	x.idle(t)
	if len(x.source.commands) != 4 || len(x.deps.brought) != 3 {
		t.Fatalf("%d commands at the source and %d at the destination for 3 batches", len(x.source.commands), len(x.deps.brought))
	}
	for i, c := range x.source.commands {
		want := fsm.ForwardMessages{
			Done: uint64(i), To: fsm.Destination{Partition: 2, Entity: 50},
			Address: fsm.Address{Entity: 1}, Max: forwardMessagesMax, MaxBytes: forwardBytesMax,
		}
		if diff := cmp.Diff(want, c); diff != "" {
			t.Errorf("command %d: %s", i, diff)
		}
	}
	seen := 0
	for i, c := range x.deps.brought {
		if c.Serial != uint64(i+1) || c.Entity != 50 || c.Source != (fsm.Outbox{Partition: 1, Address: fsm.Address{Entity: 1}}) {
			t.Errorf("batch %d: entity %d, serial %d, from %+v", i, c.Entity, c.Serial, c.Source)
		}
		for _, m := range c.Messages {
			patches, err := fsm.DecodePatches(m.Patches)
			if err != nil || m.ID != fmt.Sprintf("m%d", seen) || m.Hops != 2 || len(patches) != 1 || patches[0].Enqueued != fsm.SequenceNumber(seen+1) {
				t.Fatalf("message %d: %+v, %+v, %v", seen, m, patches, err)
			}
			seen++
		}
	}
	if got := x.Stats(); got != (Stats{Batches: 3, Messages: 3 * forwardMessagesMax}) {
		t.Errorf("%+v", got)
	}
	x.put(1, "one more") // a task that has ended starts again
	x.ended(t, 1, 3*forwardMessagesMax+1)
}

// TestForwarderRecordsTheFirstNumberAndTheSource: the first sequence number stays; a copy's first number is that
// of the topic; a dead letter names its source.
func TestForwarderRecordsTheFirstNumberAndTheSource(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	earlier := fsm.AppendPatches(nil, []fsm.Patch{{DeadLetter: true, Reason: "r", Description: "d"}, {Enqueued: 7}})
	for name, c := range map[string]struct {
		delivery fsm.Delivery
		path     string
		want     []fsm.Patch
	}{
		"first hop":       {fsm.Delivery{Lock: fsm.LockID{Sequence: 3}}, "", []fsm.Patch{{Enqueued: 3}}},
		"of a topic":      {fsm.Delivery{Lock: fsm.LockID{Sequence: 3}, Topic: 9}, "", []fsm.Patch{{Enqueued: 9}}},
		"second hop":      {fsm.Delivery{Lock: fsm.LockID{Sequence: 3}, Patches: earlier}, "", []fsm.Patch{{DeadLetter: true, Reason: "r", Description: "d"}, {Enqueued: 7}}},
		"dead letter":     {fsm.Delivery{Lock: fsm.LockID{Sequence: 3}}, "a/Subscriptions/b", []fsm.Patch{{Enqueued: 3, Source: "a/Subscriptions/b"}}},
		"old dead letter": {fsm.Delivery{Lock: fsm.LockID{Sequence: 3}, Patches: earlier}, "q", []fsm.Patch{{DeadLetter: true, Reason: "r", Description: "d"}, {Enqueued: 7}, {Source: "q"}}},
		"of a transaction": {fsm.Delivery{Lock: fsm.LockID{Sequence: 3}, Patches: fsm.AppendPatches(nil, []fsm.Patch{
			{To: fsm.Destination{Partition: 2, Entity: 50}, ToName: "b"},
		})}, "", nil},
	} {
		moved := kit.Must(x.toTransferred(&c.delivery, c.path))(t)
		got := kit.Must(fsm.DecodePatches(moved.Patches))(t)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if hopped := c.want != nil; moved.Hops != map[bool]uint8{true: 1}[hopped] {
			t.Errorf("%s: %d hops", name, moved.Hops)
		}
	}
}

// TestForwarderReturnsRefusedMessages: refused messages return with their reasons, and the others are forwarded.
func TestForwarderReturnsRefusedMessages(t *testing.T) {
	t.Parallel()
	t.Run("single messages", func(t *testing.T) {
		t.Parallel()
		x := newForwarderTest(t)
		x.LeaderChanged(1, true)
		x.deps.set(func(_ context.Context, _ fsm.PartitionID, c fsm.TransferMessages) (fsm.Result, error) {
			codes := make([]fsm.Code, len(c.Messages))
			for i, m := range c.Messages {
				if m.ID == "big" {
					codes[i] = fsm.MessageTooLarge
				}
			}
			return fsm.Result{Codes: codes}, nil
		})
		x.put(1, "a", "broken", "big", "long", "b")
		want := []fsm.Code{fsm.OK, fsm.Internal, fsm.MessageTooLarge, fsm.InvalidArgument, fsm.OK}
		if diff := cmp.Diff(want, x.ended(t, 1, 5)); diff != "" {
			t.Error(diff)
		}
		x.put(1, "broken", "broken")
		if diff := cmp.Diff(append(want, fsm.Internal, fsm.Internal), x.ended(t, 1, 7)); diff != "" {
			t.Error(diff)
		}
	})
	for _, code := range []fsm.Code{fsm.EntityNotFound, fsm.EntityDisabled, fsm.QuotaExceeded, fsm.InvalidArgument, fsm.NotAllowed, fsm.MessageTooLarge} {
		t.Run("whole batch: "+code.String(), func(t *testing.T) {
			t.Parallel()
			x := newForwarderTest(t)
			x.LeaderChanged(1, true)
			x.deps.set(func(context.Context, fsm.PartitionID, fsm.TransferMessages) (fsm.Result, error) {
				return fsm.Result{Code: code}, nil
			})
			for n := range 3 {
				x.put(1, "a")
				if codes := x.ended(t, 1, n+1); codes[n] != code {
					t.Fatal(codes)
				}
			}
			x.idle(t)
			if n := x.logged("level=WARN"); n != 1 {
				t.Errorf("logged %d times", n)
			}
			if newest := slices.Contains(x.deps.asked, true); newest != (code == fsm.EntityNotFound) {
				t.Errorf("the catalog's leader was asked: %v", newest)
			}
			x.deps.set(nil)
			x.put(1, "a")
			x.ended(t, 1, 4)
			if n := x.logged("level=INFO"); n != 1 {
				t.Errorf("the end of the failure was logged %d times", n)
			}
		})
	}
	t.Run("no such destination", func(t *testing.T) {
		t.Parallel()
		x := newForwarderTest(t)
		x.source.boxes[fsm.Address{Entity: 1}].wants = "elsewhere"
		x.LeaderChanged(1, true)
		x.put(1, "a", "b")
		if codes := x.ended(t, 1, 2); !slices.Equal(codes, []fsm.Code{fsm.EntityNotFound, fsm.EntityNotFound}) {
			t.Error(codes)
		}
		if len(x.deps.brought) != 0 {
			t.Error("it was sent somewhere")
		}
	})
}

// TestForwarderBacksOffAndRetries: after a temporary failure the forwarder waits and sends the same batch again.
func TestForwarderBacksOffAndRetries(t *testing.T) {
	t.Parallel()
	for _, code := range []fsm.Code{fsm.ServerBusy, fsm.Timeout, fsm.Stale, fsm.Internal} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			x := newForwarderTest(t)
			x.LeaderChanged(1, true)
			busy := 3
			x.deps.set(func(_ context.Context, _ fsm.PartitionID, c fsm.TransferMessages) (fsm.Result, error) {
				if busy > 0 {
					busy--
					return fsm.Result{Code: code}, nil
				}
				return fsm.Result{Codes: make([]fsm.Code, len(c.Messages))}, nil
			})
			x.put(1, "a", "b")
			if codes := x.ended(t, 1, 2); !slices.Equal(codes, []fsm.Code{fsm.OK, fsm.OK}) {
				t.Error(codes)
			}
			for _, c := range x.deps.brought {
				if c.Serial != 1 || len(c.Messages) != 2 {
					t.Errorf("brought %d messages as %d", len(c.Messages), c.Serial)
				}
			}
			if n := x.logged("level=WARN") + x.logged("level=ERROR"); n != 1 {
				t.Errorf("logged %d times", n)
			}
			if got := x.Stats(); got.Backoffs != 3 || got.Messages != 2 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestForwarderRetriesTheSource: the forwarder repeats a request whose answer is inconclusive.
func TestForwarderRetriesTheSource(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.source.answers = []partition.Answer{
		{Outcome: partition.Unknown},
		{Outcome: partition.Refused, Result: fsm.Result{Code: fsm.ServerBusy}},
	}
	x.LeaderChanged(1, true)
	x.put(1, "a")
	x.ended(t, 1, 1)
	x.idle(t)
}

// TestForwarderBackoffEndsEarlyOnAChange: a change of any kind ends a back-off, however long.
func TestForwarderBackoffEndsEarlyOnAChange(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.LeaderChanged(1, true)
	x.deps.set(func(context.Context, fsm.PartitionID, fsm.TransferMessages) (fsm.Result, error) {
		return fsm.Result{Code: fsm.ServerBusy}, nil
	})
	x.put(1, "a")
	kit.Eventually(t, "it rests for long", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for e := range x.backingOff {
			e.until = e.since.Add(time.Hour)
			return true
		}
		return false
	})
	x.deps.set(nil)
	x.transport.changed.Notify()
	x.ended(t, 1, 1)
}

// TestForwarderWithoutMessageReaderBacksOff: no message is taken or lost, and the log shows the reason.
func TestForwarderWithoutMessageReaderBacksOff(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.reread = nil
	x.LeaderChanged(1, true)
	x.put(1, "a")
	kit.Eventually(t, "it is tried again", func() bool { return x.Stats().Backoffs > 2 })
	if n := x.logged("level=ERROR"); n != 1 || len(x.source.commands) > 0 {
		t.Errorf("logged %d times, %d commands", n, len(x.source.commands))
	}
}

// TestForwarderStopsWhenLeadershipIsLost while a batch is in flight: the task ends, and the next
// leader, here the same member, sends the same batch.
func TestForwarderStopsWhenLeadershipIsLost(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.LeaderChanged(1, true)
	arrived := make(chan struct{})
	x.deps.set(func(ctx context.Context, _ fsm.PartitionID, _ fsm.TransferMessages) (fsm.Result, error) {
		close(arrived)
		<-ctx.Done()
		return fsm.Result{}, ctx.Err()
	})
	x.put(1, "a")
	<-arrived
	x.LeaderChanged(1, false)
	x.idle(t)
	x.put(1, "b") // a late effect
	x.idle(t)
	x.deps.set(nil)
	x.LeaderChanged(1, true)
	x.ended(t, 1, 2)
	var serials []uint64
	for _, c := range x.deps.brought {
		serials = append(serials, c.Serial)
	}
	if diff := cmp.Diff([]uint64{1, 1, 2}, serials); diff != "" {
		t.Error(diff)
	}
	if n := x.logged("level=WARN") + x.logged("level=ERROR"); n > 0 {
		t.Error("losing a partition was logged as a failure")
	}
	// The group has lost leadership and reports it before LeaderChanged is called.
	x.idle(t)
	x.source.mu.Lock()
	x.source.answers = []partition.Answer{{Outcome: partition.Refused}}
	x.source.mu.Unlock()
	x.put(1, "c")
	x.idle(t)
}

// gate is a destination that holds batches back and counts them.
type gate struct {
	mu       sync.Mutex
	inside   map[fsm.PartitionID]int
	most     map[fsm.PartitionID]int
	all, top int
	open     chan struct{}
}

func (g *gate) pass(ctx context.Context, to fsm.PartitionID, c fsm.TransferMessages) (fsm.Result, error) {
	g.mu.Lock()
	g.inside[to]++
	g.all++
	g.most[to], g.top = max(g.most[to], g.inside[to]), max(g.top, g.all)
	g.mu.Unlock()
	select {
	case <-g.open:
	case <-ctx.Done():
	}
	g.mu.Lock()
	g.inside[to]--
	g.all--
	g.mu.Unlock()
	return fsm.Result{Codes: make([]fsm.Code, len(c.Messages))}, ctx.Err()
}

// TestForwarderBoundsConcurrentTasks: a partition without a leader does not use all task slots, and no
// source or destination uses more than its limit.
func TestForwarderBoundsConcurrentTasks(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	const each = forwardTasksMax
	for to := range 4 {
		name := fmt.Sprintf("to-%d", to)
		x.deps.names[name] = fsm.Entity{ID: fsm.EntityID(100 + to), Partition: fsm.PartitionID(10 + to)}
		for i := range each {
			x.source.boxes[fsm.Address{Entity: fsm.EntityID(1000*(to+1) + i)}] = &fakeBox{wants: name, ready: []string{"a"}}
		}
	}
	g := &gate{inside: map[fsm.PartitionID]int{}, most: map[fsm.PartitionID]int{}, open: make(chan struct{})}
	x.deps.set(func(ctx context.Context, to fsm.PartitionID, c fsm.TransferMessages) (fsm.Result, error) {
		if to == 2 {
			return fsm.Result{Codes: make([]fsm.Code, len(c.Messages))}, nil
		}
		return g.pass(ctx, to, c)
	})
	x.LeaderChanged(1, true) // 512 sub-queues of one partition: 64 slots
	full := func(n int) func() bool {
		return func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.all == n
		}
	}
	kit.Eventually(t, "the partition has taken its places", full(forwardTasksPerSourceMax))
	x.LeaderChanged(1, false)
	x.idle(t)

	// With only one unreachable destination, there are slots for others.
	x.source.mu.Lock()
	for to := 1; to < 4; to++ {
		for i := range each {
			delete(x.source.boxes, fsm.Address{Entity: fsm.EntityID(1000*(to+1) + i)})
		}
	}
	x.source.mu.Unlock()
	x.LeaderChanged(1, true)
	kit.Eventually(t, "the dead destination has its places", full(forwardTasksPerDestinationMax))
	x.put(1, "past it")
	x.ended(t, 1, 1)
	close(g.open)
	for i := range each {
		x.ended(t, fsm.EntityID(1000+i), 1)
	}
	x.idle(t)
	if g.top > forwardTasksPerSourceMax || slices.ContainsFunc([]fsm.PartitionID{10, 11, 12, 13}, func(id fsm.PartitionID) bool { return g.most[id] > forwardTasksPerDestinationMax }) {
		t.Errorf("at most %d at a time, %v by destination", g.top, g.most)
	}
}

// TestForwarderServesTasksInTurn: with twice as many sub-queues as slots, all with many messages to
// forward, one half is served first, then the other.
func TestForwarderServesTasksInTurn(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	const busy, rounds = 2 * forwardTasksPerDestinationMax, 8
	for i := range busy {
		x.source.boxes[fsm.Address{Entity: fsm.EntityID(1000 + i)}] = &fakeBox{wants: "there", ready: texts(rounds), most: 1}
	}
	var mu sync.Mutex
	var inside []fsm.EntityID
	over := make(chan struct{}) // the round
	x.deps.set(func(ctx context.Context, _ fsm.PartitionID, c fsm.TransferMessages) (fsm.Result, error) {
		mu.Lock()
		inside = append(inside, c.Source.Address.Entity)
		round := over
		mu.Unlock()
		select {
		case <-round:
		case <-ctx.Done():
		}
		return fsm.Result{Codes: make([]fsm.Code, len(c.Messages))}, ctx.Err()
	})
	x.LeaderChanged(1, true)
	var before []fsm.EntityID
	for round := range rounds {
		kit.Eventually(t, "all places are taken, and the others wait", func() bool {
			x.mu.Lock()
			waiting := len(x.queue)
			x.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			return len(inside) == forwardTasksPerDestinationMax && waiting == busy-forwardTasksPerDestinationMax
		})
		mu.Lock()
		for _, entity := range inside {
			if slices.Contains(before, entity) {
				t.Fatalf("round %d: %d has another turn, and others have not had theirs", round, entity)
			}
		}
		before, inside = inside, nil
		close(over)
		over = make(chan struct{})
		mu.Unlock()
	}
}

// TestForwarderBoundsRememberedFailures checks that the record of failures is bounded.
func TestForwarderBoundsRememberedFailures(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	for i := range 3*failuresMax + 1 {
		if !x.setFailure(&forwardTask{source: fsm.Outbox{Partition: fsm.PartitionID(i)}}, fsm.EntityDisabled) {
			t.Fatal("trouble was not new")
		}
	}
	if n := len(x.failures); n > failuresMax {
		t.Errorf("%d are remembered", n)
	}
}
