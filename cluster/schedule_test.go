package cluster

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

// TestScheduleAndCancelOverALeaderChange schedules messages through one member and cancels some through
// another; the rest become active under the next leader, once.
func TestScheduleAndCancelOverALeaderChange(t *testing.T) {
	inBubble(t, scheduleAndCancelOverALeaderChange)
}

func scheduleAndCancelOverALeaderChange(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	at := c.create("orders", func(s *fsm.EntitySettings) { s.RequiresDuplicateDetection = true })
	leader := c.leader(at.Partition)
	one, two := c.nodes[(leader+1)%3], c.nodes[(leader+2)%3]
	due := clock.in(time.Hour)

	numbers := scheduleMessages(t, one, at,
		fsm.Message{ID: "a", Payload: []byte("a"), EnqueueAt: due}, fsm.Message{ID: "b", Payload: []byte("b"), EnqueueAt: due},
		fsm.Message{ID: "a", Payload: []byte("again"), EnqueueAt: due}, fsm.Message{ID: "c", Payload: []byte("c"), EnqueueAt: due + 1})
	if diff := cmp.Diff([]fsm.SequenceNumber{1, 2, 3, 4}, numbers); diff != "" {
		t.Fatal(diff)
	}
	if code := cancelScheduled(two, at, 2); code != fsm.OK {
		t.Fatalf("cancel: %v", code)
	}
	if code := cancelScheduled(one, at, 1, 2); code != fsm.MessageNotFound {
		t.Fatalf("cancel one that is cancelled: %v", code)
	}
	if code := cancelScheduled(one, fsm.EntityRef{Entity: at.Entity, Sub: fsm.DeadLetterQueue}, 1); code != fsm.MessageNotFound {
		t.Fatalf("cancel in the dead-letter queue: %v", code)
	}
	if counts := countMessages(t, two, at); counts.Scheduled != 2 || counts.Active != 0 {
		t.Fatalf("scheduled: %+v", counts)
	}
	peeked, err := two.Router().Peek(t.Context(), at, 1, 10, 1000)
	if err != nil || len(peeked) != 2 || peeked[0].State != fsm.Scheduled {
		t.Fatalf("peeked %+v, %v", peeked, err)
	}
	if got := receive(t, two, at); len(got) != 0 {
		t.Fatalf("before their time: %v", got)
	}

	c.kill(leader)
	c.pass(clock, time.Hour)
	if diff := cmp.Diff([]string{"a#5", "c#6"}, receive(t, one, at)); diff != "" {
		t.Error(diff)
	}
	if code := cancelScheduled(two, at, 4); code != fsm.MessageNotFound {
		t.Errorf("cancel what was enqueued: %v", code)
	}
	if counts := countMessages(t, two, at); counts != (fsm.Counts{}) {
		t.Errorf("left over: %+v", counts)
	}
}

// TestCancelInAPartitionedQueueIsAllOrNoneInEachShard: a number says which shard has the message. A shard that does not know one of
// its numbers cancels none, another one cancels all of its own, and the answer is that of the first.
func TestCancelInAPartitionedQueueIsAllOrNoneInEachShard(t *testing.T) {
	inBubble(t, cancelInAPartitionedQueueIsAllOrNoneInEachShard)
}

func cancelInAPartitionedQueueIsAllOrNoneInEachShard(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	at, node := c.create("orders", partitioned), c.nodes[0]
	due := fsm.Instant(time.Now().Add(time.Hour).UnixMilli())
	first := scheduleMessages(t, node, at, fsm.Message{PartitionKey: "0", EnqueueAt: due})[0]
	other := first
	for i := 1; other.Shard() == first.Shard(); i++ {
		other = scheduleMessages(t, node, at, fsm.Message{PartitionKey: strconv.Itoa(i), EnqueueAt: due})[0]
	}
	if code := cancelScheduled(c.nodes[1], at, first, first+1000, other); code != fsm.MessageNotFound {
		t.Errorf("with a number that nothing has: %v", code)
	}
	if code := cancelScheduled(c.nodes[2], at, first); code != fsm.OK {
		t.Errorf("of the shard that refused: %v", code)
	}
	if code := cancelScheduled(c.nodes[2], at, other); code != fsm.MessageNotFound {
		t.Errorf("of the other shard: %v", code)
	}
}

// TestScheduledMessageWakesAReceiver checks that a waiting receiver gets a scheduled message on time: at light
// load within 100 ms of the leader's clock (4 to 11 ms measured). The limit here allows for a busy machine.
func TestScheduledMessageWakesAReceiver(t *testing.T) {
	inBubble(t, scheduledMessageWakesAReceiver)
}

func scheduledMessageWakesAReceiver(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	at := c.create("orders", func(*fsm.EntitySettings) {})
	node := c.other(at.Partition)
	due := clock.in(400 * time.Millisecond)
	scheduleMessages(t, node, at, fsm.Message{Payload: []byte("x"), EnqueueAt: due})
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	got := lockMessages(receiver, 1, waitMax)
	late := clock.in(0) - due
	if len(got.deliveries) != 1 || late < 0 {
		t.Fatalf("%d ms late: %+v", late, got)
	}
	if late > fsm.Instant(waitMax.Milliseconds()/2) {
		t.Errorf("%d ms late", late)
	}
}
