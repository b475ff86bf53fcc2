package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

func TestThreeMembersServeOneQueue(t *testing.T) { inBubble(t, threeMembersServeOneQueue) }

func threeMembersServeOneQueue(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()

	createQueue(t, c.nodes[0], "Orders")
	sendMessage(t, c.nodes[1], resolve(t, c.nodes[1], "orders"), "hello")

	at := resolve(t, c.nodes[2], "/ORDERS")
	if at.Name != "Orders" || at.Sub != fsm.MainQueue {
		t.Fatalf("resolved to %+v", at)
	}
	receiver := c.nodes[2].Router().Receiver(at, false)
	defer receiver.Close()
	got := lockMessages(receiver, 10, waitMax)
	if got.code != fsm.OK || len(got.deliveries) != 1 || string(got.deliveries[0].Payload) != "hello" {
		t.Fatalf("locked %+v", got)
	}
	// Any member settles, by the token that the client has.
	token := c.nodes[2].Router().LockToken(at, got.deliveries[0].Lock)
	id, ok := c.nodes[0].Router().ParseLockToken(at, token)
	if !ok || id != got.deliveries[0].Lock {
		t.Fatalf("token came back as %v, %v", id, ok)
	}
	if code := settleMessage(t, c.nodes[0], at, id, fsm.Complete); code != fsm.OK {
		t.Fatalf("complete: %v", code)
	}
	if code := settleMessage(t, c.nodes[1], at, id, fsm.Complete); code != fsm.MessageLockLost {
		t.Fatalf("complete again: %v", code)
	}
	if counts := countMessages(t, c.nodes[1], at); counts != (fsm.Counts{}) {
		t.Fatalf("left over: %+v", counts)
	}
}

func TestEntityIsCreatedListedUpdatedAndDeleted(t *testing.T) {
	inBubble(t, entityIsCreatedListedUpdatedAndDeleted)
}

func entityIsCreatedListedUpdatedAndDeleted(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	for i := range 8 {
		createQueue(t, c.nodes[i%3], fmt.Sprintf("q%d", i))
	}
	router := c.nodes[1].Router()
	if _, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, "Q3", testSettings, nil, nil); !errors.Is(err, fsm.EntityExists) {
		t.Fatalf("made twice: %v", err)
	}
	if _, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, "bad name", testSettings, nil, nil); !errors.Is(err, fsm.InvalidArgument) {
		t.Fatalf("bad name: %v", err)
	}
	list, err := router.In(fsm.DefaultNamespace).Entities(t.Context(), fsm.QueueEntity, "", "q1", 3)
	if err != nil || len(list) != 3 || list[0].Name != "q2" || list[2].Name != "q4" {
		t.Fatalf("list: %v, %v", list, err)
	}
	per := map[fsm.PartitionID]int{}
	all := kit.Must(router.In(fsm.DefaultNamespace).Entities(t.Context(), fsm.QueueEntity, "", "", 100))(t)
	for _, entity := range all {
		per[entity.Partition]++
	}
	for id, n := range per {
		if n != 2 {
			t.Errorf("partition %d holds %d of 8 queues, want 2", id, n)
		}
	}

	settings := testSettings
	settings.MaxDeliveryCount = 9
	entity, err := router.In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "q0", settings)
	if err != nil || entity.Settings != settings.WithDefaults() || entity.Version != 2 {
		t.Fatalf("update: %+v, %v", entity, err)
	}

	at := resolve(t, c.nodes[2], "q0/$deadletterQUEUE")
	if at.Sub != fsm.DeadLetterQueue {
		t.Fatalf("resolved to %v", at.Sub)
	}
	sendMessage(t, c.nodes[2], resolve(t, c.nodes[2], "q0"), "gone")
	kit.OK(t, router.In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.QueueEntity, "q0"))
	if _, _, err := c.nodes[0].Router().In(fsm.DefaultNamespace).Entity(t.Context(), fsm.QueueEntity, "q0"); !errors.Is(err, fsm.EntityNotFound) {
		t.Fatalf("deleted queue: %v", err)
	}
	if err := router.In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.QueueEntity, "q0"); !errors.Is(err, fsm.EntityNotFound) {
		t.Fatalf("deleted again: %v", err)
	}
	// A new queue with the old name is another entity.
	again := createQueue(t, c.nodes[2], "q0")
	if again.ID == entity.ID {
		t.Fatal("the id was used again")
	}
	if counts := countMessages(t, c.nodes[0], again); counts.Active != 0 {
		t.Fatalf("the new queue holds %+v", counts)
	}
}

func TestInterruptedCreationIsFinished(t *testing.T) { inBubble(t, interruptedCreationIsFinished) }

func interruptedCreationIsFinished(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	router := c.nodes[0].Router()
	// These queues are half created: the catalog has them, their partitions do not.
	for i, name := range []string{"half", "other"} {
		_, err := router.Command(t.Context(), fsm.CatalogPartition, fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: name, Partition: fsm.PartitionID(i + 1), Settings: testSettings})
		if err != nil {
			t.Fatal(err)
		}
	}
	sendMessage(t, c.nodes[1], resolve(t, c.nodes[1], "half"), "x")
	receiver := c.nodes[2].Router().Receiver(resolve(t, c.nodes[2], "other"), false)
	defer receiver.Close()
	if got := lockMessages(receiver, 1, 10*time.Millisecond); got.code != fsm.OK {
		t.Fatalf("lock: %v", got.code)
	}
	// An entity that the catalog does not know stays unknown.
	unknown := fsm.EntityRef{Entity: fsm.Entity{ID: 999, Partition: 1}}
	done := make(chan fsm.Code, 1)
	router.Send(unknown, []fsm.Message{{Payload: []byte("x")}}, func(code fsm.Code) { done <- code })
	if code := <-done; code != fsm.EntityNotFound {
		t.Fatalf("send to nowhere: %v", code)
	}
}

func TestInterruptedDeletionIsFinished(t *testing.T) { inBubble(t, interruptedDeletionIsFinished) }

func interruptedDeletionIsFinished(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 2)
	c.startAll()
	at := createQueue(t, c.nodes[0], "half")
	sendMessage(t, c.nodes[0], at, "x")
	kit.Must(c.nodes[0].router.Command(t.Context(), fsm.CatalogPartition, fsm.DeleteEntity{Entity: at.ID}))(t)
	clock.ahead.Add(int64(time.Minute)) // nobody can still be creating them
	kit.Eventually(t, "the sweeper forgets the queue", func() bool {
		_, err := findEntity(t.Context(), c.nodes[1], entities.EntityQuery{ID: at.ID})
		return errors.Is(err, fsm.EntityNotFound)
	})
	// If a leader does not answer within a second, the status shows what its followers know.
	kit.Eventually(t, "no partition holds anything", func() bool {
		status := kit.Must(c.nodes[2].Status(t.Context()))(t)
		return len(status.Partitions) == 3 && !slices.ContainsFunc(status.Partitions[1:], func(p topology.Partition) bool { return p.Messages+uint64(p.Entities) != 0 })
	})
}

// TestRequestsSurviveLeaderDeath kills the leader of a queue while others send through another member:
// every send ends OK, and each message is there once.
func TestRequestsSurviveLeaderDeath(t *testing.T) { inBubble(t, requestsSurviveLeaderDeath) }

func requestsSurviveLeaderDeath(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	leader := c.leader(at.Partition)
	client := c.nodes[(leader+1)%3]

	// A receiver that waits at the leader gets the messages that arrive after its death.
	receiver := client.Router().Receiver(at, false)
	defer receiver.Close()
	waiting := make(chan lockedMessages, 1)
	receiver.Lock(1, 1<<20, waitMax, func(code fsm.Code, d []fsm.Delivery) { waiting <- lockedMessages{code, d} })

	const senders, each = 16, 60
	var sending sync.WaitGroup
	halfway := make(chan struct{}, senders)
	for s := range senders {
		sending.Go(func() {
			for i := range each {
				if i == each/2 {
					halfway <- struct{}{}
				}
				done := make(chan fsm.Code, 1)
				client.Router().Send(at, []fsm.Message{{Payload: fmt.Appendf(nil, "%d-%d", s, i)}}, func(code fsm.Code) { done <- code })
				if code := <-done; code != fsm.OK {
					t.Errorf("send %d-%d: %v", s, i, code)
				}
			}
		})
	}
	<-halfway
	c.kill(leader)
	sending.Wait()

	got := <-waiting
	if got.code != fsm.OK || len(got.deliveries) != 1 {
		t.Fatalf("the waiting receiver got %v, %d messages", got.code, len(got.deliveries))
	}
	seen := map[string]int{string(got.deliveries[0].Payload): 1}
	for len(seen) < senders*each {
		got := lockMessages(receiver, 500, waitMax)
		if got.code != fsm.OK || len(got.deliveries) == 0 {
			t.Fatalf("after %d messages: %v", len(seen), got.code)
		}
		for _, delivery := range got.deliveries {
			if seen[string(delivery.Payload)]++; seen[string(delivery.Payload)] > 1 || delivery.FailedDeliveries > 0 {
				t.Fatalf("%s came again", delivery.Payload)
			}
		}
	}
	if counts := countMessages(t, client, at); counts.Active != senders*each {
		t.Fatalf("%d messages, want %d", counts.Active, senders*each)
	}

	// The member comes back with its data and, as the preferred leader, leads again.
	c.start(leader)
	c.ready()
	kit.Eventually(t, "leaders are where they are wanted", func() bool {
		for _, part := range *client.partitions.Load() {
			own := client.replicas.Local(part.ID).Status()
			if own.Leader != part.Replicas[0].Member {
				return false
			}
		}
		return true
	})
	if counts := countMessages(t, c.nodes[leader], at); counts.Active != senders*each {
		t.Fatalf("after the restart %d messages, want %d", counts.Active, senders*each)
	}
}

// TestGracefulLeaveFailsNothing closes the leader while a client sends through another member.
func TestGracefulLeaveFailsNothing(t *testing.T) { inBubble(t, gracefulLeaveFailsNothing) }

func gracefulLeaveFailsNothing(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	leader := c.leader(at.Partition)
	client := c.nodes[(leader+1)%3]
	stop := make(chan struct{})
	sent := make(chan int)
	go func() {
		n := 0
		defer func() { sent <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			done := make(chan fsm.Code, 1)
			client.Router().Send(at, []fsm.Message{{Payload: []byte("x")}}, func(code fsm.Code) { done <- code })
			if code := <-done; code != fsm.OK {
				t.Errorf("send: %v", code)
				return
			}
			n++
		}
	}()
	c.stop(leader)
	close(stop)
	if n := <-sent; uint64(n) != countMessages(t, client, at).Active {
		t.Fatalf("%d sent, %d there", n, countMessages(t, client, at).Active)
	}
}

func TestRestartOfAllKeepsEverything(t *testing.T) { inBubble(t, restartOfAllKeepsEverything) }

func restartOfAllKeepsEverything(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	for i := range 20 {
		sendMessage(t, c.nodes[i%3], at, fmt.Sprint(i))
	}
	receiver := c.nodes[0].Router().Receiver(at, false)
	got := lockMessages(receiver, 5, waitMax)
	receiver.Close()
	if len(got.deliveries) == 0 {
		t.Fatalf("locked nothing: %v", got.code)
	}
	before := c.nodes[0].clusterID()
	token := c.nodes[0].Router().LockToken(at, got.deliveries[0].Lock)
	for i := range c.nodes {
		c.stop(i)
	}
	c.startAll()
	if after := c.nodes[1].clusterID(); after != before || after == "" {
		t.Fatalf("cluster %q became %q", before, after)
	}
	at = resolve(t, c.nodes[1], "orders")
	if counts := countMessages(t, c.nodes[2], at); counts.Active != 20 || counts.Locked != uint64(len(got.deliveries)) {
		t.Fatalf("after the restart: %+v", counts)
	}
	// The lock has outlived every process (docs/requirements.md#t14).
	id, ok := c.nodes[1].Router().ParseLockToken(at, token)
	if !ok {
		t.Fatal("the token is not known any more")
	}
	if code := settleMessage(t, c.nodes[1], at, id, fsm.Complete); code != fsm.OK {
		t.Fatalf("complete after the restart: %v", code)
	}
}

func TestRouterBeforeTheCatalogIsLoaded(t *testing.T) { inBubble(t, routerBeforeTheCatalogIsLoaded) }

func routerBeforeTheCatalogIsLoaded(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	lone := c.start(0)
	if _, err := lone.Router().In(fsm.DefaultNamespace).Resolve(t.Context(), "orders"); !errors.Is(err, fsm.ServerBusy) {
		t.Errorf("resolve: %v", err)
	}
	if _, err := lone.Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, "orders", testSettings, nil, nil); !errors.Is(err, fsm.ServerBusy) {
		t.Errorf("create: %v", err)
	}
	if _, ok := lone.Router().ParseLockToken(fsm.EntityRef{}, fsm.LockToken{1}); ok {
		t.Error("a token was accepted without a key")
	}
}

func TestCancelledReceiverStopsWaiting(t *testing.T) { inBubble(t, cancelledReceiverStopsWaiting) }

func cancelledReceiverStopsWaiting(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	for i, node := range c.nodes { // at the leader and at the others
		receiver := node.Router().Receiver(at, false)
		done := make(chan lockedMessages, 1)
		receiver.Lock(1, 1<<20, time.Minute, func(code fsm.Code, d []fsm.Delivery) { done <- lockedMessages{code, d} })
		receiver.Cancel()
		select {
		case got := <-done:
			if got.code != fsm.OK || len(got.deliveries) != 0 {
				t.Errorf("member %d: cancelled with %+v", i, got)
			}
		case <-time.After(waitMax):
			t.Fatalf("member %d: a cancelled lock waits", i)
		}
		if got := lockMessages(receiver, 1, 20*time.Millisecond); got.code != fsm.OK || len(got.deliveries) != 0 {
			t.Errorf("member %d: time ran out with %+v", i, got)
		}
		receiver.Close()
		receiver.Close()
		if got := lockMessages(receiver, 1, 0); got.code != fsm.ServerBusy {
			t.Errorf("member %d: closed and locks with %v", i, got.code)
		}
	}
}
