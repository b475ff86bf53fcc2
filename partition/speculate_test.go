package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/kit"
)

// follower returns a wait queue at a subscription of topic 1 with some waiters.
func follower(s *waitQueues, id fsm.EntityID, waiters int) *waitQueue {
	l := s.queueFor(waitKey{Address: fsm.Address{Entity: id}})
	l.topicKnown, l.topic, l.lastMatched, l.countKnown = true, 1, true, true
	s.addToTopic(l)
	for range waiters {
		l.insert(&waiter{queue: l})
	}
	return l
}

func newWaitQueues() *waitQueues {
	s := &waitQueues{}
	s.reset()
	return s
}

func TestSpeculationIsBounded(t *testing.T) {
	t.Parallel()
	s, b := newWaitQueues(), &batch{}
	var lines []*waitQueue
	for i := range 40 {
		lines = append(lines, follower(s, fsm.EntityID(2+i), 3))
	}
	for range 3 {
		s.speculate(b, 1, 2)
	}
	locks := 0
	for _, l := range lines {
		locks += min(l.expected, l.waiters.Len())
	}
	if locks != speculativeLocksMax || b.speculativeLocks != locks {
		t.Errorf("%d locks, counted as %d, want %d", locks, b.speculativeLocks, speculativeLocksMax)
	}
	s.removeSpeculations(b)
	for _, l := range lines {
		if l.expected != 0 || !l.lastMatched {
			t.Fatalf("line %d: %d coming, matched last %v", l.Entity, l.expected, l.lastMatched)
		}
	}
}

// Locks are counted, not waiters or messages: many waiters at one subscription, or many messages for one
// waiter.
func TestSpeculationCountsLocks(t *testing.T) {
	t.Parallel()
	s, b := newWaitQueues(), &batch{}
	one, two := follower(s, 2, 1), follower(s, 3, 100)
	for range 50 {
		s.speculate(b, 1, 10)
	}
	if one.expected != 500 || two.expected != speculativeLocksMax-1 {
		t.Errorf("coming: %d and %d", one.expected, two.expected)
	}
	idle := follower(s, 4, 0)
	s.speculate(b, 1, 1)
	s.speculate(b, 9, 1) // a topic without wait queues
	if idle.expected != 0 {
		t.Error("nobody waits there")
	}
}

// A subscription that the last message did not match is not tried again until it gets a message.
func TestSpeculationFollowsTheLastMatch(t *testing.T) {
	t.Parallel()
	s := newWaitQueues()
	hit, miss, cut := follower(s, 2, 2), follower(s, 3, 2), follower(s, 4, 1)
	b := &batch{}
	s.speculate(b, 1, 2)
	b.recordLock(hit.next(), 1)
	b.recordLock(waiterAt(hit.waiters.Back()), 0) // one of two got nothing: the rules matched one message
	b.recordLock(miss.next(), 0)
	b.recordLock(&waiter{queue: cut, proposeNow: true}, 0) // retry of an earlier lock
	s.removeSpeculations(b)
	if !hit.lastMatched || miss.lastMatched || !cut.lastMatched {
		t.Errorf("matched last: %v %v %v", hit.lastMatched, miss.lastMatched, cut.lastMatched)
	}
	b = &batch{}
	s.speculate(b, 1, 1)
	if hit.expected != 1 || miss.expected != 0 {
		t.Errorf("coming: %d and %d", hit.expected, miss.expected)
	}
	s.removeSpeculations(b)
	for range 2 {
		s.observeEffect(fsm.Effect{Address: miss.Address, Ready: 1})
	}
	if !miss.lastMatched || len(s.topics[1].lastMatched) != 3 {
		t.Errorf("matched last: %v, %d in all", miss.lastMatched, len(s.topics[1].lastMatched))
	}
	dead := s.queueFor(waitKey{Address: fsm.Address{Entity: 2, Sub: fsm.DeadLetterQueue}})
	dead.topicKnown, dead.topic = true, 1
	s.observeEffect(fsm.Effect{Address: dead.Address, Ready: 1})
	if dead.lastMatched {
		t.Error("a topic sends nothing to a dead-letter queue")
	}
}

// Wait queues that are dropped leave their topic too.
func TestTopicsAreRebuiltAfterEviction(t *testing.T) {
	t.Parallel()
	s := newWaitQueues()
	kept := follower(s, 2, 1)
	for i := range waitQueuesMax + 10 {
		follower(s, fsm.EntityID(3+i), 0)
	}
	if len(s.queues) > waitQueuesMax || s.queues[kept.waitKey] != kept {
		t.Fatalf("%d lines", len(s.queues))
	}
	f := s.topics[1]
	if len(f.queues) != len(s.queues) || len(f.lastMatched) != len(s.queues) || !slices.Contains(f.queues, kept) {
		t.Errorf("%d lines, %d and %d in the family", len(s.queues), len(f.queues), len(f.lastMatched))
	}
}

// topicGroup creates topic 1 with subscriptions from entity 2 on that get every message.
func topicGroup(t testing.TB, g *Group, a *asker, subscriptions int) {
	t.Helper()
	must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings(), Kind: fsm.TopicEntity})
	for i := range subscriptions {
		must(t, g, a.next(), fsm.PutEntity{
			Entity: fsm.EntityID(2 + i), Version: 1, Settings: settings(), Kind: fsm.SubscriptionEntity, Topic: 1,
		})
	}
}

func oneTopic(t *testing.T, subscriptions int) (*Group, *asker) {
	t.Helper()
	ms := newMembers(t, 1, nil)
	ms[0].start(1)
	_, g := leader(t, ms, 1)
	a := &asker{origin: 7}
	topicGroup(t, g, a, subscriptions)
	return g, a
}

// reader is a receiver that requests again after every answer.
type reader struct {
	t   testing.TB
	g   *Group
	at  fsm.Address
	ask asker
	got chan Answer
}

// newReader returns when its first request waits.
func newReader(t testing.TB, g *Group, at fsm.Address, receiver uint64) *reader {
	t.Helper()
	r := &reader{t: t, g: g, at: at, ask: asker{origin: 8, receiver: receiver}}
	before := g.Status().Waiting
	r.wait()
	kit.Eventually(t, "the request stands in line", func() bool {
		g.proposer.mu.Lock()
		defer g.proposer.mu.Unlock()
		return g.proposer.waiterCount == before+1 && g.proposer.proposeCount == 0 && g.proposer.queues[waitKey{Address: at}].waiters.Len() > 0 && g.proposer.queues[waitKey{Address: at}].countKnown
	})
	return r
}

func (r *reader) wait() {
	got := make(chan Answer, 1)
	r.got = got
	r.g.Lock(LockRequest{
		Header: r.ask.next(), Lock: fsm.LockMessages{Address: r.at, Max: 10, MaxBytes: 1 << 20, Delete: true},
		Until: time.Now().Add(time.Minute), Done: func(a Answer) { got <- a },
	})
}

// next returns the result of the current request, and starts the next one.
func (r *reader) next() []string {
	r.t.Helper()
	a := await1(r.t, r.got)
	if a.Outcome != Done || a.Result.Code != fsm.OK || len(a.Result.Deliveries) == 0 {
		r.t.Fatalf("entity %d: %+v", r.at.Entity, a)
	}
	var got []string
	for _, d := range a.Result.Deliveries {
		got = append(got, string(d.Payload))
	}
	r.wait()
	return got
}

// A waiter at a subscription gets a message sent to the topic in the entry of the send, also the very first
// one.
func TestSubscriptionIsServedInTheEntryOfTheSend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, a := oneTopic(t, 3)
		var readers []*reader
		for i := range 3 {
			readers = append(readers, newReader(t, g, fsm.Address{Entity: fsm.EntityID(2 + i)}, uint64(i+1)))
		}
		before := g.Status().Applied
		for i := range 5 {
			must(t, g, a.next(), send(1, body(2*i), body(2*i+1)))
			for _, r := range readers {
				if diff := cmp.Diff([]string{string(body(2 * i)), string(body(2*i + 1))}, r.next()); diff != "" {
					t.Fatal(diff)
				}
			}
		}
		if n := g.Status().Applied - before; n != 5 {
			t.Errorf("5 messages took %d entries", n)
		}
	})
}

// More subscriptions than an entry speculates for are all served, one entry later.
func TestTopicServesManySubscriptions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const subscriptions = 40
		g, a := oneTopic(t, subscriptions)
		var readers []*reader
		for i := range subscriptions {
			readers = append(readers, newReader(t, g, fsm.Address{Entity: fsm.EntityID(2 + i)}, uint64(i+1)))
		}
		before := g.Status().Applied
		for i := range 3 {
			must(t, g, a.next(), send(1, body(i)))
			for _, r := range readers {
				if diff := cmp.Diff([]string{string(body(i))}, r.next()); diff != "" {
					t.Fatal(diff)
				}
			}
		}
		if n := g.Status().Applied - before; n > 6+3 { // a reader may ask again while the second entry is in flight
			t.Errorf("3 messages took %d entries", n)
		}
	})
}

// A subscription whose rules match little costs one wasted lock for each message that it gets, and its
// receivers keep waiting.
func TestSubscriptionsThatNeverMatchCostNoLocks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, a := oneTopic(t, 1)
		must(t, g, a.next(), fsm.DropRule{Subscription: 2, Name: fsm.DefaultRuleName})
		must(t, g, a.next(), fsm.PutRule{Subscription: 2, Rule: fsm.Rule{
			Name: "red", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "color = 'red'"}},
		}})
		r := newReader(t, g, fsm.Address{Entity: 2}, 1)
		coloured := func(color string, i int) uint64 {
			t.Helper()
			before := g.Status().Applied
			must(t, g, a.next(), fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{
				Payload:    body(i),
				Properties: fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Name: "color"}, Value: filter.Text(color)}}),
			}}})
			if color == "red" {
				if diff := cmp.Diff([]string{string(body(i))}, r.next()); diff != "" {
					t.Fatal(diff)
				}
			}
			return g.Status().Applied - before
		}
		matchedLast := func() bool {
			g.proposer.mu.Lock()
			defer g.proposer.mu.Unlock()
			return g.proposer.queues[waitKey{Address: r.at}].lastMatched
		}
		for i, step := range []struct {
			color       string
			entries     uint64
			matchedLast bool
		}{
			{"blue", 1, false}, {"blue", 1, false}, {"red", 2, true}, {"red", 1, true}, {"blue", 1, false}, {"red", 2, true},
		} {
			if n := coloured(step.color, i); n != step.entries || matchedLast() != step.matchedLast {
				t.Errorf("message %d, %s: %d entries, matched last %v", i, step.color, n, matchedLast())
			}
		}
	})
}

// When a topic is deleted, waiters at its subscriptions and their sub-queues are told, whether or not a
// message was ever sent.
func TestWaitersAreToldThatTheTopicIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, a := oneTopic(t, 3)
		must(t, g, a.next(), fsm.PutEntity{Entity: 9, Version: 1, Settings: settings()})
		other := newReader(t, g, fsm.Address{Entity: 9}, 9)
		var readers []*reader
		for i := range 3 {
			for sub := range fsm.TransferDeadLetterQueue + 1 {
				readers = append(readers, newReader(t, g, fsm.Address{Entity: fsm.EntityID(2 + i), Sub: sub}, uint64(100*i)+uint64(sub)))
			}
		}
		before := g.Status().Applied
		must(t, g, a.next(), fsm.DropEntity{Entity: 1})
		for _, r := range readers {
			if got := await1(t, r.got); got.Outcome != Done || got.Result.Code != fsm.EntityNotFound {
				t.Errorf("%+v: %+v", r.at, got)
			}
		}
		if n := g.Status().Applied - before; n > 3 {
			t.Errorf("it took %d entries to tell them", n)
		}
		must(t, g, a.next(), send(9, body(1)))
		other.next()
	})
}

// Messages that wait to be forwarded are reported to the forwarder, and to no waiter.
func TestForwardingWakesNoWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		effects := make(chan fsm.Effect, 100)
		_, g, a := openSingle(t, func(c *Config) { c.Effect = func(e fsm.Effect) { effects <- e } })
		newReader(t, g, fsm.Address{Entity: 1, Sub: fsm.DeadLetterQueue}, 1)
		waiting := newReader(t, g, fsm.Address{Entity: 1}, 2)
		s := settings()
		s.ForwardTo = "elsewhere"
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 2, Settings: s})
		if got := await1(t, waiting.got); got.Result.Code != fsm.NotAllowed {
			t.Errorf("who waited where messages are forwarded now: %+v", got)
		}
		before := g.Status().Applied
		for i := range 3 {
			must(t, g, a.next(), send(1, body(i)))
		}
		timer := time.NewTimer(60 * time.Second)
		defer timer.Stop()
		select {
		case e := <-effects:
			if e.Kind != fsm.EffectForward || e.Address != (fsm.Address{Entity: 1}) {
				t.Errorf("effect %+v", e)
			}
		case <-timer.C:
			t.Fatal("nobody was told")
		}
		if n := g.Status().Applied - before; n != 3 {
			t.Errorf("3 sends took %d entries", n)
		}
		if n := g.Status().Waiting; n != 1 {
			t.Errorf("%d wait at the dead-letter queue", n)
		}
	})
}
