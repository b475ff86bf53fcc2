package cluster

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// TestIdleQueueDeletesItself checks that an idle queue deletes itself on all members and frees its name
// (docs/requirements.md#e7), and that a queue that was used stays (docs/requirements.md#e8).
func TestIdleQueueDeletesItself(t *testing.T) {
	kit.Long(t)
	inBubble(t, idleQueueDeletesItself)
}

func idleQueueDeletesItself(t *testing.T) {
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
	inBubble(t, nextLeaderRemovesAnIdleQueue)
}

func nextLeaderRemovesAnIdleQueue(t *testing.T) {
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
	kit.Eventually(t, "the next leader removes it", func() bool { return c.gone(at) })
}

// TestDeletionOfAnIdleQueueCompletesFromEveryState checks that a deletion completes from every state that it had reached.
func TestDeletionOfAnIdleQueueCompletesFromEveryState(t *testing.T) {
	inBubble(t, deletionOfAnIdleQueueCompletesFromEveryState)
}

func deletionOfAnIdleQueueCompletesFromEveryState(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	short := func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 }
	forgotten, dropping := c.create("forgotten", short), c.create("dropping", short)
	router := c.nodes[0].router
	for _, command := range []fsm.Command{
		fsm.DeleteEntity{Entity: forgotten.ID}, fsm.ForgetEntity{Entity: forgotten.ID}, fsm.DeleteEntity{Entity: dropping.ID},
	} {
		kit.Must(router.Command(t.Context(), fsm.CatalogPartition, command))(t)
	}
	c.pass(clock, 6*time.Minute)
	kit.Eventually(t, "both are gone", func() bool { return c.gone(forgotten) && c.gone(dropping) })
}

// TestPeeksAndWaitingReceiversKeepAQueue checks that peeks and waiting receivers, which write nothing into the
// log, count as uses (docs/requirements.md#e8).
func TestPeeksAndWaitingReceiversKeepAQueue(t *testing.T) {
	inBubble(t, peeksAndWaitingReceiversKeepAQueue)
}

func peeksAndWaitingReceiversKeepAQueue(t *testing.T) {
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
	waiting.Lock(1, 1000, 10*time.Minute, func(code fsm.Code, d []fsm.Delivery) { waits <- lockedMessages{code, d} })
	settings := testSettings
	settings.AutoDeleteOnIdle = 5 * 60_000
	for _, name := range []string{"peeked", "received", "polled", "left"} {
		kit.Must(c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, name, settings))(t)
	}
	known := func() bool { // so that the reports do not depend on the speed of the catalog
		found := true
		node.replicas.Local(fsm.CatalogPartition).View(func(m partition.Machine) {
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
		kit.Must(node.Router().Peek(t.Context(), peeked, 1, 1, 1000))(t)
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

// TestIdleDeletionOfATopicTakesItsSubscriptions checks that idle deletion of one entity leaves the others alone, but that a
// topic takes its subscriptions with it (docs/requirements.md#e7, #e8).
func TestIdleDeletionOfATopicTakesItsSubscriptions(t *testing.T) {
	inBubble(t, idleDeletionOfATopicTakesItsSubscriptions)
}

func idleDeletionOfATopicTakesItsSubscriptions(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	short := func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 }
	topic, idle := c.make(fsm.TopicEntity, "topic", nil), c.make(fsm.TopicEntity, "idle", short)
	kept, lost := c.make(fsm.SubscriptionEntity, "topic/Subscriptions/kept", short), c.make(fsm.SubscriptionEntity, "topic/Subscriptions/lost", short)
	along := c.make(fsm.SubscriptionEntity, "idle/Subscriptions/along", nil)
	node := c.other(1)
	mustSend(t, node, topic, fsm.Message{Payload: []byte("x")})
	c.pass(clock, 4*time.Minute)
	kit.Must(node.Router().Peek(t.Context(), kept, 1, 1, 1000))(t)
	mustSend(t, node, topic, fsm.Message{Payload: []byte("no use of a subscription")})
	if got := receive(t, node, along); len(got) != 0 {
		t.Errorf("received %v", got)
	}
	kit.Eventually(t, "the peek is reported", func() bool {
		return !node.router.LastActivity(kept.ID).IsZero()
	})
	settled(t, node, 1) // and the report is applied
	c.pass(clock, 2*time.Minute)
	kit.Eventually(t, "the idle ones are gone", func() bool { return c.gone(lost) && c.gone(idle) && c.gone(along) })
	kit.Eventually(t, "the others are there", func() bool { return c.holds(1, topic.ID, kept.ID) })
	resolve(t, node, "topic/Subscriptions/kept")
	if got := receive(t, node, kept); len(got) != 2 {
		t.Errorf("kept: %v", got)
	}
	if code := sendCode(node, idle, fsm.Message{Payload: []byte("late")}); code != fsm.EntityNotFound {
		t.Errorf("send to the topic that is gone: %v", code)
	}
	if !c.holds(1, topic.ID, kept.ID) {
		t.Error("a late send made it again")
	}
}

// TestNextLeaderRemovesAnIdleTopic checks a topic that deletes itself and whose leader dies before the catalog
// learns of it: the next leader finds the tombstone, and the subscriptions are removed from the catalog too.
func TestNextLeaderRemovesAnIdleTopic(t *testing.T) { inBubble(t, nextLeaderRemovesAnIdleTopic) }

func nextLeaderRemovesAnIdleTopic(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	topic := c.make(fsm.TopicEntity, "idle", func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 })
	sub := c.make(fsm.SubscriptionEntity, "idle/Subscriptions/s", nil)
	leader := c.leader(topic.Partition)
	survivor := c.nodes[(leader+1)%3]
	c.nodes[leader].partitions.Store(nil) // the leader then no longer reconciles its partitions
	clock.ahead.Add(int64(6 * time.Minute))
	if code := sendCode(survivor, topic, fsm.Message{Payload: []byte("late")}); code != fsm.EntityNotFound {
		t.Errorf("send: %v", code)
	}
	// A receiver does not recreate the subscription or its topic either.
	receiver := survivor.Router().Receiver(sub, false)
	defer receiver.Close()
	if got := lockMessages(receiver, 1, waitMax); got.code != fsm.EntityNotFound {
		t.Errorf("receive: %v", got.code)
	}
	c.kill(leader)
	kit.Eventually(t, "the next leader buries it", func() bool { return c.gone(topic) && c.gone(sub) })
}

// TestIdleDestinationDeletesItself checks a queue to which a subscription leads, such as the one of a process that has ended:
// it is idle while no message comes, and the subscription, which is never idle while it forwards, stays.
func TestIdleDestinationDeletesItself(t *testing.T) { inBubble(t, idleDestinationDeletesItself) }

func idleDestinationDeletesItself(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	for i := range c.configs {
		c.configs[i].Reread = readWhole
	}
	c.startAll()
	short := func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 }
	topic, queue := c.make(fsm.TopicEntity, "topic", nil), c.create("answers", short)
	sub := c.make(fsm.SubscriptionEntity, "topic/Subscriptions/s", func(s *fsm.EntitySettings) {
		short(s)
		s.ForwardTo = "answers"
	})
	node := c.other(1)
	c.pass(clock, 4*time.Minute)
	mustSend(t, node, topic, fsm.Message{Payload: []byte("x")})
	kit.Eventually(t, "the message has been forwarded", func() bool { return countMessages(t, node, queue).Active == 1 })
	c.pass(clock, 4*time.Minute)
	resolve(t, node, "answers") // the message was a use of it
	c.pass(clock, 2*time.Minute)
	kit.Eventually(t, "the queue is gone", func() bool { return c.gone(queue) })
	kit.Eventually(t, "the subscription is there", func() bool { return c.holds(1, topic.ID, sub.ID) })
}

// TestSendWhileAnIdleQueueIsRemovedIsRefused: the tombstone of an idle queue is gone, and a sender still finds the queue in the
// catalog, as one does whose look-up was before the removal began. The send is refused: it would be confirmed, and dropped with the queue.
func TestSendWhileAnIdleQueueIsRemovedIsRefused(t *testing.T) {
	inBubble(t, sendWhileAnIdleQueueIsRemovedIsRefused)
}

func sendWhileAnIdleQueueIsRemovedIsRefused(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	at := c.create("idle", func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 })
	leader := c.leader(at.Partition)
	node := c.nodes[(leader+1)%3]
	c.nodes[leader].partitions.Store(nil) // so that nobody removes it
	clock.ahead.Add(int64(6 * time.Minute))
	// The queue deletes itself in the entry of this send, at the latest.
	if code := sendCode(node, at, fsm.Message{Payload: []byte("first")}); code != fsm.EntityNotFound {
		t.Errorf("send: %v", code)
	}
	kit.Must(node.router.Command(t.Context(), at.Partition, fsm.DropEntity{Entity: at.ID}))(t)
	if code := sendCode(node, at, fsm.Message{Payload: []byte("late")}); code != fsm.EntityNotFound {
		t.Errorf("send: %v", code)
	}
	clock.ahead.Add(int64(time.Minute)) // nobody can be about to put it there any more: whoever misses it completes the removal
	if code := sendCode(node, at, fsm.Message{Payload: []byte("later")}); code != fsm.EntityNotFound {
		t.Errorf("send: %v", code)
	}
	kit.Eventually(t, "the removal is complete", func() bool { return c.gone(at) })
}

// TestTimeThatPassedInAnOutageIsRepeated: a leader dies before time passes, so its successor counts that as an outage, in which
// nothing is idle. Tests of idleness do not depend on who leads: pass repeats it.
func TestTimeThatPassedInAnOutageIsRepeated(t *testing.T) {
	inBubble(t, timeThatPassedInAnOutageIsRepeated)
}

func timeThatPassedInAnOutageIsRepeated(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	idle := c.create("idle", func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 })
	c.passWhile(clock, 6*time.Minute, func() { c.kill(c.leader(idle.Partition)) })
	kit.Eventually(t, "the idle queue is gone", func() bool { return c.gone(idle) })
}
