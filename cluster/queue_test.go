package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// testClock is the wall clock and the monotonic clock with some time added, the same at every member.
type testClock struct {
	start time.Time
	ahead atomic.Int64
}

func (c *testClock) monotonic() time.Duration { return c.now().Sub(c.start) }

func (c *testClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *testClock) in(d time.Duration) fsm.Instant { return fsm.Instant(c.now().Add(d).UnixMilli()) }

// newTimedCluster starts a cluster whose queues use a clock that the test can advance.
func newTimedCluster(t *testing.T, members, partitions int) (*testCluster, *testClock) {
	t.Helper()
	c, clock := newTestCluster(t, members, partitions), &testClock{start: time.Now()}
	for i := range c.configs {
		c.configs[i].Now, c.configs[i].Monotonic = clock.now, clock.monotonic
	}
	return c, clock
}

// pass advances the clock. A leader sleeps until its next deadline by the system clock, so each leader gets a
// command.
func (c *testCluster) pass(clock *testClock, d time.Duration) {
	c.t.Helper()
	clock.ahead.Add(int64(d))
	for _, node := range c.nodes {
		if node == nil {
			continue
		}
		for _, part := range *node.partitions.Load() {
			_, err := node.router.Command(c.t.Context(), part.ID, fsm.Touch{Entity: 1 << 40})
			if !errors.Is(err, fsm.EntityNotFound) {
				c.t.Fatalf("wake partition %d: %v", part.ID, err)
			}
		}
		return
	}
}

func (c *testCluster) create(name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	c.t.Helper()
	settings := testSettings
	change(&settings)
	entity, err := c.nodes[0].Router().In(fsm.DefaultNamespace).CreateEntity(c.t.Context(), fsm.QueueEntity, name, settings, nil, nil)
	if err != nil {
		c.t.Fatalf("create queue: %v", err)
	}
	return fsm.EntityRef{Entity: entity}
}

// other returns a living member that does not lead the partition.
func (c *testCluster) other(id fsm.PartitionID) *Node {
	c.t.Helper()
	leader := c.leader(id)
	for i, node := range c.nodes {
		if node != nil && i != leader {
			return node
		}
	}
	c.t.Fatal("no other member is alive")
	return nil
}

func sendCode(node *Node, at fsm.EntityRef, messages ...fsm.Message) fsm.Code {
	done := make(chan fsm.Code, 1)
	node.Router().Send(at, messages, func(code fsm.Code) { done <- code })
	return <-done
}

func scheduleMessages(t *testing.T, node *Node, at fsm.EntityRef, messages ...fsm.Message) []fsm.SequenceNumber {
	t.Helper()
	type answer struct {
		code    fsm.Code
		numbers []fsm.SequenceNumber
	}
	done := make(chan answer, 1)
	node.Router().Schedule(at, messages, func(code fsm.Code, numbers []fsm.SequenceNumber) { done <- answer{code, numbers} })
	got := <-done
	if got.code != fsm.OK {
		t.Fatalf("schedule: %v", got.code)
	}
	return got.numbers
}

func cancelScheduled(node *Node, at fsm.EntityRef, numbers ...fsm.SequenceNumber) fsm.Code {
	done := make(chan fsm.Code, 1)
	node.Router().CancelScheduled(at, numbers, func(code fsm.Code) { done <- code })
	return <-done
}

// receive removes all ready messages, and returns their payloads in order.
func receive(t *testing.T, node *Node, at fsm.EntityRef) []string {
	t.Helper()
	receiver := node.Router().Receiver(at, true)
	defer receiver.Close()
	payloads := []string{}
	kit.Eventually(t, "everything that is ready has been received", func() bool {
		for {
			got := lockMessages(receiver, 100, 0)
			if got.code != fsm.OK {
				t.Fatalf("receive: %v", got.code)
			}
			if len(got.deliveries) == 0 { // nothing is ready, or there was no leader at that moment
				return ready(t, node, at) == 0
			}
			for _, delivery := range got.deliveries {
				payloads = append(payloads, fmt.Sprintf("%s#%d", delivery.Payload, delivery.Lock.Sequence))
			}
		}
	})
	return payloads
}

// ready returns how many messages of an entity are not locked.
func ready(t *testing.T, node *Node, at fsm.EntityRef) uint64 {
	t.Helper()
	switch counts := countMessages(t, node, at); at.Sub {
	case fsm.MainQueue:
		return counts.Active - counts.Locked
	case fsm.DeadLetterQueue:
		return counts.DeadLetter
	case fsm.TransferDeadLetterQueue:
		return counts.TransferDeadLetter
	case fsm.TransferQueue:
		return counts.Transfer
	}
	return 0
}

// TestScheduleAndCancelOverALeaderChange schedules messages through one member and cancels some through
// another; the rest become active under the next leader, once.
func TestScheduleAndCancelOverALeaderChange(t *testing.T) {
	t.Parallel()
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	at := c.create("orders", func(s *fsm.EntitySettings) { s.RequiresDuplicateDetection = true })
	leader := c.leader(at.Partition)
	one, two := c.nodes[(leader+1)%3], c.nodes[(leader+2)%3]
	due := clock.in(time.Hour)

	numbers := scheduleMessages(t, one, at,
		fsm.Message{ID: "a", Payload: []byte("a"), EnqueueAt: due}, fsm.Message{ID: "b", Payload: []byte("b"), EnqueueAt: due},
		fsm.Message{ID: "a", Payload: []byte("again"), EnqueueAt: due}, fsm.Message{ID: "c", Payload: []byte("c"), EnqueueAt: due + 1})
	if diff := cmp.Diff([]fsm.SequenceNumber{1, 2, 0, 3}, numbers); diff != "" {
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
	if diff := cmp.Diff([]string{"a#4", "c#5"}, receive(t, one, at)); diff != "" {
		t.Error(diff)
	}
	if code := cancelScheduled(two, at, 3); code != fsm.MessageNotFound {
		t.Errorf("cancel what was enqueued: %v", code)
	}
	if counts := countMessages(t, two, at); counts != (fsm.Counts{}) {
		t.Errorf("left over: %+v", counts)
	}
}

// TestScheduledMessageWakesAReceiver checks that a waiting receiver gets a scheduled message on time: at light
// load within 100 ms of the leader's clock (4 to 11 ms measured). The limit here allows for a busy machine.
func TestScheduledMessageWakesAReceiver(t *testing.T) {
	t.Parallel()
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

// gone reports whether no member knows an entity any more, by name, by id, or in its partition.
func (c *testCluster) gone(at fsm.EntityRef) bool {
	for _, node := range c.nodes {
		if node == nil {
			continue
		}
		if _, err := node.Router().In(fsm.DefaultNamespace).Resolve(c.t.Context(), at.Name); !errors.Is(err, fsm.EntityNotFound) {
			return false
		}
		_, err := findEntity(c.t.Context(), node, router.EntityQuery{ID: at.ID})
		if !errors.Is(err, fsm.EntityNotFound) {
			return false
		}
		clean := false
		node.localReplica(at.Partition).View(func(m partition.Machine) {
			_, there := raftgroup.Queues(m).Settings(at.ID)
			clean = !there && len(raftgroup.Queues(m).Tombstones()) == 0
		})
		if !clean {
			return false
		}
	}
	return true
}

// TestIdleQueueDeletesItself checks that an idle queue deletes itself on all members and frees its name
// (docs/requirements.md#e7), and that a queue that was used stays (docs/requirements.md#e8).
func TestIdleQueueDeletesItself(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	short := func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 }
	idle, used, kept := c.create("idle", short), c.create("used", short), c.create("kept", func(*fsm.EntitySettings) {})
	node := c.other(idle.Partition)
	sendMessage(t, node, idle, "lost with the queue")

	c.pass(clock, 4*time.Minute)
	sendMessage(t, node, used, "x")
	resolve(t, node, "idle") // 4 min are not enough, with a minute for this test, and resolving the name is not a use
	countMessages(t, node, idle)
	c.pass(clock, 2*time.Minute)
	kit.Eventually(t, "the idle queue is gone", func() bool { return c.gone(idle) })
	resolve(t, node, "used")
	resolve(t, node, "kept")

	if code := sendCode(node, idle, fsm.Message{Payload: []byte("late")}); code != fsm.EntityNotFound {
		t.Errorf("send to the deleted queue: %v", code)
	}
	if !c.gone(idle) {
		t.Error("a late send made it again")
	}
	again := c.create("idle", short)
	if again.ID == idle.ID {
		t.Error("the id was used again")
	}
	if counts := countMessages(t, node, again); counts != (fsm.Counts{}) {
		t.Errorf("the new queue holds %+v", counts)
	}
	// The leader dies; its successor continues to count the idle time.
	c.pass(clock, 4*time.Minute)
	kit.Eventually(t, "the used queue is gone", func() bool { return c.gone(used) })
	c.kill(c.leader(again.Partition))
	c.pass(clock, 2*time.Minute)
	kit.Eventually(t, "the new queue is gone under the next leader", func() bool { return c.gone(again) })
	if counts := countMessages(t, c.other(kept.Partition), kept); counts != (fsm.Counts{}) {
		t.Errorf("the queue without a limit: %+v", counts)
	}
}

// TestNextLeaderRemovesAnIdleQueue checks a queue that deletes itself and whose leader dies before the catalog
// learns of it: the next leader finds the tombstone.
func TestNextLeaderRemovesAnIdleQueue(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	at := c.create("idle", func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 })
	leader := c.leader(at.Partition)
	survivor := c.nodes[(leader+1)%3]
	c.nodes[leader].partitions.Store(nil) // the leader then no longer reconciles its partitions
	clock.ahead.Add(int64(6 * time.Minute))
	// The send finds in the same entry that the queue is gone, and must not create it again.
	if code := sendCode(survivor, at, fsm.Message{Payload: []byte("late")}); code != fsm.EntityNotFound {
		t.Errorf("send: %v", code)
	}
	c.kill(leader)
	kit.Eventually(t, "the next leader buries it", func() bool { return c.gone(at) })
}

// TestIdleQueueThatWasDeletedMeanwhile checks that a deletion completes from every state that it had reached.
func TestIdleQueueThatWasDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	short := func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 }
	forgotten, dropping := c.create("forgotten", short), c.create("dropping", short)
	router := c.nodes[0].router
	for _, command := range []fsm.Command{
		fsm.DeleteEntity{Entity: forgotten.ID}, fsm.ForgetEntity{Entity: forgotten.ID}, fsm.DeleteEntity{Entity: dropping.ID},
	} {
		if _, err := router.Command(t.Context(), fsm.CatalogPartition, command); err != nil {
			t.Fatal(err)
		}
	}
	c.pass(clock, 6*time.Minute)
	kit.Eventually(t, "both are gone", func() bool { return c.gone(forgotten) && c.gone(dropping) })
}

// TestPeeksAndWaitingReceiversKeepAQueue checks that peeks and waiting receivers, which write nothing into the
// log, count as uses (docs/requirements.md#e8).
func TestPeeksAndWaitingReceiversKeepAQueue(t *testing.T) {
	t.Parallel()
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	forever := func(*fsm.EntitySettings) {}
	peeked, received, polled, left := c.create("peeked", forever), c.create("received", forever), c.create("polled", forever), c.create("left", forever)
	node := c.other(peeked.Partition)

	// The links are attached before the limit is set.
	waiting, polling := node.Router().Receiver(received, false), node.Router().Receiver(polled, false)
	defer waiting.Close()
	defer polling.Close()
	waits := make(chan lockedMessages, 1)
	waiting.Lock(1, 1000, time.Minute, func(code fsm.Code, d []fsm.Delivery) { waits <- lockedMessages{code, d} })
	settings := testSettings
	settings.AutoDeleteOnIdle = 5 * 60_000
	for _, name := range []string{"peeked", "received", "polled", "left"} {
		if _, err := c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, name, settings); err != nil {
			t.Fatal(err)
		}
	}
	known := func() bool { // so that the reports do not depend on the speed of the catalog
		found := true
		node.localReplica(fsm.CatalogPartition).View(func(m partition.Machine) {
			for _, at := range []fsm.EntityRef{peeked, received, polled} {
				entity, _ := raftgroup.Catalog(m).ByID(at.ID)
				found = found && entity.Settings.AutoDeleteOnIdle == settings.AutoDeleteOnIdle
			}
		})
		return found
	}
	kit.Eventually(t, "the settings are known", known)
	touched := func(at fsm.EntityRef) bool {
		return clock.now().Sub(node.router.LastActivity(at.ID)) < 30*time.Second
	}
	for range 4 {
		clock.ahead.Add(int64(2 * time.Minute))
		if _, err := node.Router().Peek(t.Context(), peeked, 1, 1, 1000); err != nil {
			t.Fatal(err)
		}
		if got := lockMessages(polling, 1, time.Millisecond); got.code != fsm.OK {
			t.Fatalf("poll: %v", got.code)
		}
		kit.Eventually(t, "the receivers are reported", func() bool { return touched(received) && touched(polled) })
		settled(t, node, peeked.Partition)
		c.pass(clock, 0)
	}
	kit.Eventually(t, "the queue that nobody uses is gone", func() bool { return c.gone(left) })
	for _, name := range []string{"peeked", "received", "polled"} {
		resolve(t, c.nodes[0], name)
	}
	sendMessage(t, node, received, "at last")
	if got := <-waits; len(got.deliveries) != 1 {
		t.Errorf("the waiting receiver got %+v", got)
	}
}

// settled waits until everything that a node has submitted to a partition has been answered.
func settled(t *testing.T, node *Node, id fsm.PartitionID) {
	t.Helper()
	kit.Eventually(t, "nothing is outstanding", func() bool { return node.router.Outstanding(id) == 0 })
}

func TestPurgeAndRedrive(t *testing.T) {
	t.Parallel()
	c, clock := newTimedCluster(t, 3, 2)
	c.startAll()
	at := c.create("orders", func(*fsm.EntitySettings) {})
	dead := fsm.EntityRef{Entity: at.Entity, Sub: fsm.DeadLetterQueue}
	node := c.other(at.Partition)
	for i := range 6 {
		sendMessage(t, node, at, fmt.Sprint("m", i))
	}
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	for _, delivery := range lockMessages(receiver, 4, waitMax).deliveries {
		if code := settleMessage(t, node, at, delivery.Lock, fsm.DeadLetter); code != fsm.OK {
			t.Fatal(code)
		}
	}
	router := c.nodes[0].Router()
	if n, err := router.In(fsm.DefaultNamespace).RedriveEntity(t.Context(), "ORDERS", []fsm.SequenceNumber{1, 3, 5, 99}); n != 2 || err != nil {
		t.Fatalf("redrive: %d, %v", n, err)
	}
	if n, err := router.In(fsm.DefaultNamespace).RedriveEntity(t.Context(), "orders", []fsm.SequenceNumber{1, 3}); n != 0 || err != nil {
		t.Fatalf("redrive again: %d, %v", n, err)
	}
	if diff := cmp.Diff(fsm.Counts{Active: 4, DeadLetter: 2, Bytes: 12}, countMessages(t, node, at)); diff != "" {
		t.Fatal(diff)
	}
	back := lockMessages(receiver, 1, waitMax)
	if len(back.deliveries) != 1 || back.deliveries[0].Lock.Sequence != 1 || back.deliveries[0].FailedDeliveries != 0 {
		t.Fatalf("came back as %+v", back)
	}
	// The locked message stays, and so do those that were sent later.
	border := clock.now().Add(time.Second)
	clock.ahead.Add(int64(5 * time.Second))
	sendMessage(t, node, at, "late")
	if n, err := router.In(fsm.DefaultNamespace).PurgeEntity(t.Context(), "orders", fsm.MainQueue, border, 1); n != 1 || err != nil {
		t.Fatalf("purge one: %d, %v", n, err)
	}
	purged := make(chan int, 1)
	node.Router().Purge(at, fsm.Instant(border.UnixMilli()), 1_000_000, func(code fsm.Code, n int) {
		if code != fsm.OK {
			t.Errorf("purge: %v", code)
		}
		purged <- n
	})
	if n := <-purged; n != 2 {
		t.Fatalf("purged %d", n)
	}
	if n, err := router.In(fsm.DefaultNamespace).PurgeEntity(t.Context(), "orders", fsm.DeadLetterQueue, time.Time{}, 4000); n != 2 || err != nil {
		t.Fatalf("purge dead letters: %d, %v", n, err)
	}
	if code := settleMessage(t, node, at, back.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
		t.Errorf("complete: %v", code)
	}
	if got := receive(t, node, at); len(got) != 1 || !strings.HasPrefix(got[0], "late#") {
		t.Errorf("left: %v", got)
	}
	if got := receive(t, node, dead); len(got) != 0 {
		t.Errorf("dead letters left: %v", got)
	}
}

func TestPurgeAndRedriveRefuse(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 1, 1)
	c.startAll()
	router, ctx := c.nodes[0].Router(), t.Context()
	at := createQueue(t, c.nodes[0], "orders")
	some := []fsm.SequenceNumber{1}
	for name, c := range map[string]struct {
		err  error
		want fsm.Code
	}{
		"redrive nowhere":  {second(router.In(fsm.DefaultNamespace).RedriveEntity(ctx, "none", some)), fsm.EntityNotFound},
		"redrive nothing":  {second(router.In(fsm.DefaultNamespace).RedriveEntity(ctx, "orders", nil)), fsm.InvalidArgument},
		"redrive too many": {second(router.In(fsm.DefaultNamespace).RedriveEntity(ctx, "orders", make([]fsm.SequenceNumber, 1000+1))), fsm.InvalidArgument},
		"purge nowhere":    {second(router.In(fsm.DefaultNamespace).PurgeEntity(ctx, "none", 0, time.Time{}, 1)), fsm.EntityNotFound},
		"purge nothing":    {second(router.In(fsm.DefaultNamespace).PurgeEntity(ctx, "orders", 0, time.Time{}, 0)), fsm.InvalidArgument},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	router.Purge(at, 0, 0, func(code fsm.Code, n int) {
		if code != fsm.InvalidArgument || n != 0 {
			t.Errorf("purge none: %v %d", code, n)
		}
	})
	// A time before 1970 is before all messages; it does not mean "all".
	sendMessage(t, c.nodes[0], at, "x")
	if n, err := router.In(fsm.DefaultNamespace).PurgeEntity(ctx, "orders", 0, time.Unix(-5, 0), 10); n != 0 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestLocksSurviveUpdates changes settings while the queue is in use, which loses no locks
// (docs/requirements.md#t14).
func TestLocksSurviveUpdates(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	node := c.other(at.Partition)
	for i := range 3 {
		sendMessage(t, node, at, fmt.Sprint(i))
	}
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	held := lockMessages(receiver, 3, waitMax).deliveries
	if len(held) == 0 {
		t.Fatal("nothing was locked")
	}
	settings := testSettings
	settings.LockDuration, settings.MaxDeliveryCount, settings.DefaultTimeToLive = 5000, 1, 60_000
	settings.DeadLetterOnExpiry, settings.Status = true, fsm.Disabled
	entity, err := c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "orders", settings)
	if err != nil || entity.Settings != settings.WithDefaults() {
		t.Fatalf("update: %+v, %v", entity, err)
	}
	done := make(chan fsm.Code, 1)
	node.Router().Renew(at, []fsm.LockID{held[0].Lock}, func(codes []fsm.Code, _ []fsm.Instant) { done <- codes[0] })
	if code := <-done; code != fsm.OK {
		t.Errorf("renew: %v", code)
	}
	for _, delivery := range held {
		if code := settleMessage(t, c.nodes[0], at, delivery.Lock, fsm.Complete); code != fsm.OK {
			t.Errorf("complete %d: %v", delivery.Lock.Sequence, code)
		}
	}
	settings.RequiresDuplicateDetection = true
	_, err = c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "orders", settings)
	if !errors.Is(err, fsm.InvalidArgument) || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("change of what is fixed: %v", err)
	}
}

// TestReceiversLearnTheStatusOfTheirQueue checks that receivers that wait at a queue learn of its status at once,
// and that everything continues when it is active again.
func TestReceiversLearnTheStatusOfTheirQueue(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	node := c.other(at.Partition)
	set := func(status fsm.EntityStatus) {
		settings := testSettings
		settings.Status = status
		if _, err := c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "orders", settings); err != nil {
			t.Fatal(err)
		}
	}
	x := fsm.Message{Payload: []byte("x")}
	for _, step := range []struct {
		status        fsm.EntityStatus
		send, receive fsm.Code
	}{
		{fsm.Disabled, fsm.EntityDisabled, fsm.EntityDisabled},
		{fsm.SendDisabled, fsm.EntityDisabled, fsm.OK},
		{fsm.ReceiveDisabled, fsm.OK, fsm.EntityDisabled},
		{fsm.Active, fsm.OK, fsm.OK},
	} {
		var waiting []chan lockedMessages
		for range 3 {
			receiver := node.Router().Receiver(at, false)
			defer receiver.Close()
			lockMessages(receiver, 1, 0) // the first lock request of a receiver never waits in a queue
			answer := make(chan lockedMessages, 1)
			receiver.Lock(1, 1000, waitMax, func(code fsm.Code, d []fsm.Delivery) { answer <- lockedMessages{code, d} })
			waiting = append(waiting, answer)
		}
		set(step.status)
		if step.receive != fsm.OK {
			for i, answer := range waiting {
				if got := await(t, answer); got.code != fsm.EntityDisabled {
					t.Errorf("status %d: waiter %d heard %v", step.status, i, got.code)
				}
			}
		}
		if code := sendCode(node, at, x); code != step.send {
			t.Errorf("status %d: send %v", step.status, code)
		}
		receiver, wait := node.Router().Receiver(at, true), time.Duration(0)
		if step.receive != fsm.OK {
			wait = waitMax // for a leader that reports it
		}
		if got := lockMessages(receiver, 1, wait); got.code != step.receive {
			t.Errorf("status %d: receive %v", step.status, got.code)
		}
		receiver.Close()
		set(fsm.Active)
		for { // the queue is empty again, and the waiting receivers are served
			if got := receive(t, node, at); len(got) == 0 {
				break
			}
		}
	}
}

func await(t *testing.T, answer chan lockedMessages) lockedMessages {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	select {
	case got := <-answer:
		return got
	case <-ctx.Done():
		t.Fatal("no answer in", waitMax)
		return lockedMessages{}
	}
}

// TestWaitingReceiversHearOfDeletion checks that the deletion of a queue ends the requests of its waiting
// receivers.
func TestWaitingReceiversHearOfDeletion(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	var waiting []chan lockedMessages
	for _, node := range c.nodes {
		receiver := node.Router().Receiver(at, false)
		defer receiver.Close()
		lockMessages(receiver, 1, 0)
		answer := make(chan lockedMessages, 1)
		receiver.Lock(1, 1000, time.Minute, func(code fsm.Code, d []fsm.Delivery) { answer <- lockedMessages{code, d} })
		waiting = append(waiting, answer)
	}
	if err := c.nodes[1].Router().In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.QueueEntity, "orders"); err != nil {
		t.Fatal(err)
	}
	for i, answer := range waiting {
		if got := await(t, answer); got.code != fsm.EntityNotFound {
			t.Errorf("at member %d: %v", i, got.code)
		}
	}
}

// TestQuotaRefusesSends checks that a full queue refuses messages until one has left it.
func TestQuotaRefusesSends(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3, 1)
	c.startAll()
	at := c.create("small", func(s *fsm.EntitySettings) { s.MaxBytes = 1 << 20 })
	node := c.other(at.Partition)
	big := fsm.Message{Payload: bytes.Repeat([]byte("x"), 256<<10)}
	for i := range 4 {
		if code := sendCode(node, at, big); code != fsm.OK {
			t.Fatalf("send %d: %v", i, code)
		}
	}
	if code := sendCode(node, at, fsm.Message{Payload: []byte("x")}); code != fsm.QuotaExceeded {
		t.Fatalf("one byte too many: %v", code)
	}
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	got := lockMessages(receiver, 1, waitMax)
	if len(got.deliveries) != 1 || settleMessage(t, node, at, got.deliveries[0].Lock, fsm.Complete) != fsm.OK {
		t.Fatalf("receive: %+v", got.code)
	}
	if codes := []fsm.Code{sendCode(node, at, big, big), sendCode(node, at, big)}; !slices.Equal(codes, []fsm.Code{fsm.QuotaExceeded, fsm.OK}) {
		t.Errorf("two and one: %v", codes)
	}
}
