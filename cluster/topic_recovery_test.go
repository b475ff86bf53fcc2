package cluster

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestInterruptedCreationOfATopicIsFinished checks that the first use of a half created entity completes its creation.
func TestInterruptedCreationOfATopicIsFinished(t *testing.T) {
	inBubble(t, interruptedCreationOfATopicIsFinished)
}

func interruptedCreationOfATopicIsFinished(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	halves := func(name string) (topic, sub fsm.EntityRef) {
		t.Helper()
		topic = c.half(fsm.CreateEntity{Kind: fsm.TopicEntity, Name: name, Partition: 1})
		rule := sqlRule("mine", "1=1")
		sub = c.half(fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: topic.ID, Name: fsm.SubscriptionPath(name, "s"), Rule: &rule})
		return topic, sub
	}
	topic, sub := halves("by-receive")
	receiver := c.nodes[1].Router().Receiver(resolve(t, c.nodes[1], sub.Name), true)
	defer receiver.Close()
	// The wait ends when the creation is complete; before that, the topic would drop messages.
	if got := lockMessages(receiver, 1, waitMax); got.code != fsm.OK {
		t.Fatalf("lock: %v", got.code)
	}
	mustSend(t, c.nodes[2], topic, fsm.Message{Payload: []byte("x")})
	if got := lockMessages(receiver, 1, waitMax); len(got.deliveries) != 1 {
		t.Fatalf("after the making was finished: %+v", got)
	}
	if diff := cmp.Diff([]string{"mine"}, ruleNames(t, c.nodes[0], sub.Name)); diff != "" {
		t.Error(diff)
	}

	topic, sub = halves("by-send")
	mustSend(t, c.nodes[1], resolve(t, c.nodes[1], topic.Name), fsm.Message{Payload: []byte("for nobody yet")})
	if err := c.nodes[2].Router().AddRule(t.Context(), sub, sqlRule("other", "1=2")); err != nil {
		t.Fatalf("add rule: %v", err)
	}
	mustSend(t, c.nodes[1], topic, fsm.Message{Payload: []byte("x")})
	if diff := cmp.Diff([]string{"x#1"}, receive(t, c.nodes[0], sub)); diff != "" {
		t.Error(diff)
	}

	_, sub = halves("by-rules")
	if diff := cmp.Diff([]string{"mine"}, ruleNames(t, c.nodes[0], sub.Name)); diff != "" {
		t.Error(diff)
	}
	// A new subscription completes the creation of a topic that its partition does not know.
	topic = c.half(fsm.CreateEntity{Kind: fsm.TopicEntity, Name: "by-another", Partition: 1})
	sub = c.make(fsm.SubscriptionEntity, "by-another/Subscriptions/s", nil)
	mustSend(t, c.nodes[1], topic, fsm.Message{Payload: []byte("x")})
	if diff := cmp.Diff([]string{"x#1"}, receive(t, c.nodes[0], sub)); diff != "" {
		t.Error(diff)
	}
}

// TestInterruptedDeletionOfATopicIsFinished checks that an interrupted deletion completes, and that late sends have no
// effect.
func TestInterruptedDeletionOfATopicIsFinished(t *testing.T) {
	inBubble(t, interruptedDeletionOfATopicIsFinished)
}

func interruptedDeletionOfATopicIsFinished(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	topic, sub, other := c.make(fsm.TopicEntity, "t", nil), c.make(fsm.SubscriptionEntity, "t/Subscriptions/s", nil), c.make(fsm.SubscriptionEntity, "t/Subscriptions/other", nil)
	mustSend(t, c.nodes[0], topic, fsm.Message{Payload: []byte("x")})
	forgotten := func(at fsm.EntityRef) func() bool {
		return func() bool {
			_, err := findEntity(t.Context(), c.nodes[1], entities.EntityQuery{ID: at.ID})
			return errors.Is(err, fsm.EntityNotFound)
		}
	}
	cut := func(at fsm.EntityRef) {
		t.Helper()
		kit.Must(c.nodes[0].router.Command(t.Context(), fsm.CatalogPartition, fsm.DeleteEntity{Entity: at.ID}))(t)
	}
	cut(other)
	clock.ahead.Add(int64(time.Minute)) // nobody can still be creating it
	kit.Eventually(t, "the sweeper forgets the subscription", forgotten(other))
	kit.Eventually(t, "the others stay", func() bool { return c.holds(1, topic.ID, sub.ID) })
	if got := receive(t, c.nodes[2], sub); len(got) != 1 {
		t.Errorf("left: %v", got)
	}

	cut(topic)
	for _, path := range []string{"t", "t/Subscriptions/s"} {
		if _, err := findEntity(t.Context(), c.nodes[2], entities.EntityQuery{Namespace: fsm.DefaultNamespace, Name: path}); !errors.Is(err, fsm.EntityNotFound) {
			t.Errorf("%s: %v", path, err)
		}
	}
	clock.ahead.Add(int64(time.Minute))
	kit.Eventually(t, "the sweeper forgets the topic", forgotten(topic))
	kit.Eventually(t, "the partition has nothing", func() bool { return c.holds(1) })
	// Late commands for the old entities create nothing.
	for _, at := range []fsm.EntityRef{topic, sub} {
		if _, err := c.nodes[0].router.PutEntity(t.Context(), at.ID); !errors.Is(err, fsm.EntityNotFound) {
			t.Errorf("put %s: %v", at.Name, err)
		}
	}
	put := fsm.PutEntity{Entity: sub.ID, Version: 9, Settings: testSettings, Kind: fsm.SubscriptionEntity, Topic: topic.ID}
	if _, err := c.nodes[0].router.Command(t.Context(), 1, put); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("a subscription without a topic was put: %v", err)
	}
	if !c.holds(1) {
		t.Error("something came back")
	}
	again := c.make(fsm.TopicEntity, "t", nil)
	if again.ID == topic.ID {
		t.Error("the id was used again")
	}
	if list, err := c.nodes[1].Router().In(fsm.DefaultNamespace).Entities(t.Context(), fsm.SubscriptionEntity, "t", "", 10); err != nil || len(list) != 0 {
		t.Errorf("the new topic has %v, %v", list, err)
	}
}

// TestTopicSurvivesItsLeader kills the leader while others send to a topic: every send ends OK, and each
// subscription has each message once.
func TestTopicSurvivesItsLeader(t *testing.T) { inBubble(t, topicSurvivesItsLeader) }

func topicSurvivesItsLeader(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	topic := c.make(fsm.TopicEntity, "t", nil)
	var subs []fsm.EntityRef
	for i := range 3 {
		subs = append(subs, c.make(fsm.SubscriptionEntity, fsm.SubscriptionPath("t", fmt.Sprint(i)), nil))
	}
	leader := c.leader(topic.Partition)
	client := c.nodes[(leader+1)%3]
	const senders, each = 8, 60
	var sending, receiving sync.WaitGroup
	halfway := make(chan struct{}, senders)
	for s := range senders {
		sending.Go(func() {
			for i := range each {
				if i == each/2 {
					halfway <- struct{}{}
				}
				if code := sendCode(client, topic, fsm.Message{Payload: fmt.Appendf(nil, "%d-%d", s, i)}); code != fsm.OK {
					t.Errorf("send %d-%d: %v", s, i, code)
				}
			}
		})
	}
	for _, sub := range subs {
		receiving.Go(func() {
			receiver := client.Router().Receiver(sub, true)
			defer receiver.Close()
			seen := map[string]bool{}
			for len(seen) < senders*each {
				got := lockMessages(receiver, 50, waitMax)
				if got.code != fsm.OK || len(got.deliveries) == 0 {
					t.Errorf("%s: after %d messages: %v", sub.Name, len(seen), got.code)
					return
				}
				for _, delivery := range got.deliveries {
					if seen[string(delivery.Payload)] {
						t.Errorf("%s: %s came again", sub.Name, delivery.Payload)
					}
					seen[string(delivery.Payload)] = true
				}
			}
		})
	}
	<-halfway
	c.kill(leader)
	sending.Wait()
	receiving.Wait()
	for _, sub := range subs {
		if got := receive(t, client, sub); len(got) != 0 {
			t.Errorf("%s: left over %v", sub.Name, got)
		}
	}
	c.start(leader)
	c.ready()
	kit.Eventually(t, "no body is kept", func() bool { return countMessages(t, client, topic).Bytes == 0 })
}
