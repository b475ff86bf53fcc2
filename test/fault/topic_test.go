package fault

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	forwardedMessages    = 10_000 // messages that wait to be forwarded to another partition when the fault happens
	forwardSubscriptions = 3      // subscriptions of the destination
	publishSubscriptions = 10     // subscriptions of a topic that is published to under load
)

// createSubscriptions creates subscriptions of a topic and returns their paths.
func createSubscriptions(t *testing.T, c *harness.Cluster, topic string, n int) []string {
	t.Helper()
	paths := make([]string, n)
	for i := range paths {
		name := fmt.Sprintf("s%02d", i)
		c.CreateSubscription(t, topic, name, harness.Settings{LockDuration: time.Minute})
		paths[i] = harness.SubscriptionPath(topic, name)
	}
	return paths
}

// forwardLoad is a queue in one partition that forwards to a topic in another. Different
// members lead them; the third leads neither.
type forwardLoad struct {
	*harness.Cluster
	*testing.T
	*load
	source, destination, third *harness.Member
	topic                      string
}

// surviveWhileForwarding fills the queue, forwards its messages while more are sent, and injects the fault when the
// first ones have arrived. Clients are at the members without a fault.
func surviveWhileForwarding(t *testing.T, clients func(forwardLoad) []*harness.Member, inject func(forwardLoad)) {
	c, source, others := start(t, harness.Settings{LockDuration: time.Minute})
	v := forwardLoad{Cluster: c, T: t, source: source}
	var entities []string
	for i := 0; entities == nil; i++ {
		v.topic = fmt.Sprintf("topic-%d", i)
		c.CreateTopic(t, v.topic, harness.Settings{})
		paths := createSubscriptions(t, c, v.topic, forwardSubscriptions)
		if v.destination = c.Leader(t, paths[0]); v.destination != source {
			entities = paths
		}
	}
	for _, m := range others {
		if m != v.destination {
			v.third = m
		}
	}
	v.load = newLoad(t, queue, entities...)
	v.drainedQueues = append([]string{queue}, entities...)
	at := clients(v)
	v.send(senders, at[0])
	for _, m := range at {
		v.receive(receivers/len(at), m)
	}
	v.waitConfirmed(forwardedMessages, "messages before the fault")
	c.UpdateQueue(t, queue, harness.Fields{"forwardTo": v.topic})
	v.waitQuarterForwarded()
	inject(v)
	v.waitDelivered(phase, "arrivals after the fault")
	v.waitConfirmed(phase, "sends after the fault")
	v.finish(c)
	if n := v.errors.Load(); n != 0 {
		t.Errorf("clients at running members saw %d errors, only a pause is allowed", n)
	}
}

// waitDelivered waits until n more copies were delivered to receivers.
func (v forwardLoad) waitDelivered(n int, what string) {
	v.Helper()
	v.waitCount(history.Delivered, n, what)
}

// waitQuarterForwarded waits until a quarter of the waiting messages has been forwarded.
func (v forwardLoad) waitQuarterForwarded() {
	v.Helper()
	harness.Progress(v.T, confirmsWithin, "a quarter has been forwarded", func(ctx context.Context) (int, error) {
		q, err := v.third.Queue(ctx, queue)
		if err != nil {
			return math.MinInt, err
		}
		left := int(q.Counts.Transfer)
		if left > forwardedMessages*3/4 {
			err = fmt.Errorf("%d are left", left)
		}
		return -left, err
	})
}

// logProgress logs the progress of forwarding at the time of a fault.
func (v forwardLoad) logProgress(what string) {
	v.Helper()
	q, err := v.third.Queue(v.Context(), queue)
	if err == nil && q.Counts.Transfer == 0 {
		err = errors.New("no message is left to forward: the fault would test nothing")
	}
	if err != nil {
		v.Fatal(err)
	}
	v.Logf("%s with %d messages still to forward, %d of %d copies delivered", what, q.Counts.Transfer, v.Count(history.Delivered), forwardSubscriptions*v.Count(history.SendAccepted))
}

// The leader of a queue is killed while 10,000 of its messages are forwarded to a topic of another
// partition, and starts again: each arrives once at each subscription.
func TestForwardingSurvivesLeaderKill(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	surviveWhileForwarding(t, func(v forwardLoad) []*harness.Member {
		return []*harness.Member{v.third, v.destination}
	}, func(v forwardLoad) {
		v.logProgress("the source's leader is killed")
		v.source.Kill()
		v.waitConfirmed(phase, "sends without the leader")
		v.source.Start()
		v.source.WaitReady()
		waitCaughtUp(v.T, v.source, v.third)
	})
}

// The same leader is paused for longer than an election, and continues with its current batch, which the next
// leader has sent already.
func TestForwardingSurvivesLeaderPause(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	surviveWhileForwarding(t, func(v forwardLoad) []*harness.Member {
		return []*harness.Member{v.third, v.destination}
	}, func(v forwardLoad) {
		v.logProgress("the source's leader is paused")
		v.source.Pause()
		v.waitConfirmed(phase, "sends while the leader is paused")
		v.source.Resume()
		v.waitConfirmed(phase, "sends with the member back")
		waitCaughtUp(v.T, v.source, v.third)
	})
}

// The leader of the topic is killed: a batch that it accepted and had not yet answered is not accepted
// again by the next leader.
func TestForwardingSurvivesDestinationLeaderKill(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	surviveWhileForwarding(t, func(v forwardLoad) []*harness.Member {
		return []*harness.Member{v.third, v.source}
	}, func(v forwardLoad) {
		v.logProgress("the topic's leader is killed")
		v.destination.Kill()
		v.waitConfirmed(phase, "sends without the topic's leader")
		v.destination.Start()
		v.destination.WaitReady()
	})
}

// The leader is killed while messages are published: each accepted message arrives once at
// each of ten subscriptions.
func TestPublishingSurvivesLeaderKill(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	const topic = "topic"
	c, _, _ := start(t, harness.Settings{}, "--snapshot-bytes", "1048576")
	c.CreateTopic(t, topic, harness.Settings{})
	places := createSubscriptions(t, c, topic, publishSubscriptions)
	leader := c.Leader(t, places[0])
	others := c.Others(leader)
	l := newLoad(t, topic, places...)
	l.send(4, others[0])
	l.receive(2, others[0])
	l.receive(1, others[1])
	l.waitConfirmed(phase/2, "load before the fault")
	l.takeLongestPause()
	leader.Kill()
	l.waitConfirmed(phase, "load without the leader")
	t.Logf("leader killed: sends paused for %v", l.takeLongestPause().Round(time.Millisecond))
	leader.Start()
	leader.WaitReady()
	l.waitConfirmed(phase/2, "load with the member back")
	l.finish(c)
	if n := l.errors.Load(); n != 0 {
		t.Errorf("clients at running members saw %d errors, only a pause is allowed", n)
	}
	for _, m := range c.Members { // the bodies are deleted too, also at the member that was down
		if _, err := m.Topic(t.Context(), topic); err != nil {
			t.Error(err)
		}
	}
	c.WaitTopicCounts(t, topic, harness.Counts{Subscriptions: publishSubscriptions})
}

// All members are killed while messages are forwarded, and their clients lose their connections: each
// accepted message arrives once at each subscription when they have started again.
func TestForwardingSurvivesKillOfAllMembers(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, _, _ := start(t, harness.Settings{}, "--snapshot-bytes", "1048576")
	const topic = "topic"
	c.CreateTopic(t, topic, harness.Settings{})
	places := createSubscriptions(t, c, topic, forwardSubscriptions)
	v := forwardLoad{Cluster: c, T: t, third: c.Members[2], load: newLoad(t, queue, places...)}
	v.drainedQueues = append([]string{queue}, places...)
	v.send(senders, c.Members[2], c.Members[0], c.Members[1])
	v.waitConfirmed(forwardedMessages, "messages before the fault")
	c.UpdateQueue(t, queue, harness.Fields{"forwardTo": topic})
	v.waitQuarterForwarded()
	v.logProgress("all are killed")
	for _, m := range c.Members {
		m.Kill()
	}
	for _, m := range c.Members {
		m.Start()
	}
	for _, m := range c.Members {
		m.WaitReady()
	}
	c.WaitLed(t)
	v.waitConfirmed(phase, "sends after the fault")
	v.receive(2, c.Members...)
	v.receive(2, c.Members[1])
	v.finish(c)
}
