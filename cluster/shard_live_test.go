package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// TestSessionsOfAPartitionedQueueAreFoundAtAnyMember: sessions of a partitioned queue are found by name through any member, in
// order; a receiver that accepts any session waits at all shards and takes only one.
func TestSessionsOfAPartitionedQueueAreFoundAtAnyMember(t *testing.T) {
	inBubble(t, sessionsOfAPartitionedQueueAreFoundAtAnyMember)
}

func sessionsOfAPartitionedQueueAreFoundAtAnyMember(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", both(partitioned, withSessions))
	const sessions = 6
	var waiting []chan acceptedSession
	for i := range sessions {
		got, _ := accepting(c.nodes[i%3], at, nil, time.Minute)
		waiting = append(waiting, got)
	}
	for i := range sessions {
		mustSend(t, c.nodes[(i+1)%3], at, inSession(fmt.Sprint("s", i), "1", "2")...)
		mustSend(t, c.nodes[(i+2)%3], at, inSession(fmt.Sprint("s", i), "3")...)
	}
	held := map[string]*router.SessionReceiver{}
	for _, got := range waiting {
		a := <-got
		if a.code != fsm.OK {
			t.Fatalf("accept: %v", a.code)
		}
		held[a.session.Name()] = a.session
	}
	if len(held) != sessions {
		t.Fatalf("held %v", held)
	}
	// Other shards that had also found a session for that receiver have released it.
	none, _ := accepting(c.nodes[0], at, nil, 50*time.Millisecond)
	if a := <-none; a.code != fsm.Timeout {
		t.Errorf("one more: %v", a.code)
	}
	list, err := c.nodes[1].Router().Sessions(t.Context(), at, 0, 1, 4)
	if err != nil || len(list) != 4 {
		t.Errorf("listed %v, %v", list, err)
	}
	seen := map[int]bool{}
	for name, s := range held {
		got := lockMessages(s.Receiver, 3, time.Minute).deliveries
		for len(got) < 3 {
			got = append(got, lockMessages(s.Receiver, 3, time.Minute).deliveries...)
		}
		if diff := cmp.Diff([]string{"1", "2", "3"}, payloads(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		seen[shardIn(got[0].Lock.Sequence)] = true
		if code := settleMessage(t, c.nodes[2], at, got[0].Lock, fsm.Complete); code != fsm.OK {
			t.Errorf("%s: complete: %v", name, code)
		}
		if code := settleMessage(t, c.nodes[1], at, got[1].Lock, fsm.Defer); code != fsm.OK {
			t.Errorf("%s: defer: %v", name, code)
		}
		fetched := make(chan []fsm.Delivery, 1)
		s.Fetch([]fsm.SequenceNumber{got[1].Lock.Sequence, 99, 15 << fsm.ShardShift}, false, func(_ fsm.Code, d []fsm.Delivery) { fetched <- d })
		if d := <-fetched; len(d) != 1 || d[0].Lock.Sequence != got[1].Lock.Sequence {
			t.Errorf("%s: fetched %+v", name, d)
		}
		if err := s.SetState(t.Context(), []byte(name)); err != nil {
			t.Error(err)
		}
		if state, err := s.State(t.Context()); string(state) != name || err != nil {
			t.Errorf("%s: state %q, %v", name, state, err)
		}
		peeked, err := c.nodes[0].Router().PeekSession(t.Context(), at, name, 0, 10, 1<<20)
		if diff := cmp.Diff([]string{"2", "3"}, payloads(peeked)); err != nil || diff != "" || peeked[0].Lock.Sequence != got[1].Lock.Sequence {
			t.Errorf("%s: peek: %v %s", name, err, diff)
		}
		thief, _ := accepting(c.nodes[0], at, &name, waitMax)
		if a := <-thief; a.code != fsm.SessionCannotBeLocked {
			t.Errorf("%s is held twice: %v", name, a.code)
		}
		released := make(chan struct{})
		s.Release(func() { close(released) })
		<-released
		again := acceptNamed(t, c.nodes[1], at, name)
		defer again.Close()
	}
	if len(seen) < 2 {
		t.Errorf("all sessions are in shards %v", seen)
	}
}

// TestShardsOfAPartitionedTopicServeAllSubscriptions: each shard of a partitioned topic copies its messages to its subscriptions; their
// rules are the same in all shards, even after an interrupted change.
func TestShardsOfAPartitionedTopicServeAllSubscriptions(t *testing.T) {
	inBubble(t, shardsOfAPartitionedTopicServeAllSubscriptions)
}

func shardsOfAPartitionedTopicServeAllSubscriptions(t *testing.T) {
	c := newBubbleCluster(t, 3, 3)
	c.startAll()
	topic := c.make(fsm.TopicEntity, "events", partitioned)
	all := c.make(fsm.SubscriptionEntity, "events/subscriptions/all", nil)
	red := c.make(fsm.SubscriptionEntity, "events/subscriptions/red", nil)
	router := c.nodes[1].Router()
	for i, shard := range red.Shards {
		if shard.Partition != topic.Shards[i].Partition {
			t.Errorf("shard %d is in partition %d, that of its topic in %d", i, shard.Partition, topic.Shards[i].Partition)
		}
	}
	// Simulate an interrupted change: one shard has the rule already.
	rule := sqlRule("red", "color = 'red'")
	if _, err := c.nodes[0].router.Command(t.Context(), red.Shards[1].Partition, fsm.PutRule{Subscription: red.Shards[1].Entity, Rule: sqlRule("red", "1 = 0")}); err != nil {
		t.Fatal(err)
	}
	if err := router.AddRule(t.Context(), red, rule); err != nil {
		t.Errorf("add: %v", err)
	}
	if err := router.AddRule(t.Context(), red, rule); codeOfError(err) != fsm.RuleExists {
		t.Errorf("add again: %v", err)
	}
	if err := router.RemoveRule(t.Context(), red, fsm.DefaultRuleName); err != nil {
		t.Errorf("remove: %v", err)
	}
	if err := router.RemoveRule(t.Context(), red, fsm.DefaultRuleName); codeOfError(err) != fsm.RuleNotFound {
		t.Errorf("remove again: %v", err)
	}
	if diff := cmp.Diff([]string{"red"}, ruleNames(t, c.nodes[2], red.Name)); diff != "" {
		t.Error(diff)
	}
	for i := range 12 {
		mustSend(t, c.nodes[i%3], topic, coloured([]string{"red", "blue"}[i%2], fmt.Sprint(i)))
	}
	c.counted(all, "all have come", active(12))
	c.counted(red, "the red ones have come", active(6))
	for _, d := range lockAll(t, c.nodes[0], red, 6) {
		if shardIn(d.Topic) != shardIn(d.Lock.Sequence) {
			t.Errorf("number %d was %d at the topic", d.Lock.Sequence, d.Topic)
		}
	}
	_, counts, err := router.In(fsm.DefaultNamespace).Entity(t.Context(), fsm.TopicEntity, "events")
	if err != nil || counts.Subscriptions != 2 {
		t.Errorf("%+v, %v", counts, err)
	}
	// Settings reach every shard.
	settings := testSettings
	settings.EnablePartitioning, settings.Status = true, fsm.SendDisabled
	kit.Must(router.In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.TopicEntity, "events", settings))(t)
	for range 3 {
		if code := sendCode(c.nodes[0], topic, coloured("red", "x")); code != fsm.EntityDisabled {
			t.Errorf("sent to a disabled shard: %v", code)
		}
	}
	c.remove(topic)
	for i := range 3 {
		kit.Eventually(t, "the partition is empty", func() bool { return c.holds(fsm.PartitionID(i + 1)) })
	}
}

func codeOfError(err error) (code fsm.Code) {
	errors.As(err, &code)
	return code
}

// TestMessagesAreForwardedOnceFromEveryShard: messages are forwarded from every shard, and to the shard of their key; each
// arrives once, while members die.
func TestMessagesAreForwardedOnceFromEveryShard(t *testing.T) {
	inBubble(t, messagesAreForwardedOnceFromEveryShard)
}

func messagesAreForwardedOnceFromEveryShard(t *testing.T) {
	c := newForwardingCluster(t, 3)
	c.startAll()
	const total = 3000
	sink := c.make(fsm.QueueEntity, "sink", both(partitioned, func(s *fsm.EntitySettings) { s.RequiresDuplicateDetection = true }))
	source := c.make(fsm.QueueEntity, "source", partitioned)
	want := map[string]int{}
	for i := range total / 100 {
		batch := make([]fsm.Message, 100)
		for k := range batch {
			text := fmt.Sprintf("%d.%d", i, k)
			want[text] = 1
			batch[k] = fsm.Message{ID: text, Payload: []byte(text)}
		}
		mustSend(t, c.nodes[i%3], source, batch...)
	}
	c.change(source, both(partitioned, forwards("sink")))
	dead := c.leader(sink.Shards[1].Partition)
	c.kill(dead)
	c.counted(source, "all has gone", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	c.start(dead)
	c.ready()
	c.counted(sink, "all have come", active(total))
	counts, err := c.any().Router().Counts(t.Context(), []fsm.Entity{
		shards.Ref(sink, 0).Entity, shards.Ref(sink, 1).Entity, shards.Ref(sink, 2).Entity,
	})
	if err != nil || counts[0].Active == 0 || counts[1].Active == 0 || counts[2].Active == 0 {
		t.Errorf("shards hold %+v, %v", counts, err)
	}
	got := map[string]int{}
	for _, m := range c.take(sink, 2*total) {
		got[m.Payload]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTransactionOfAPartitionedEntityIsInOneShard: a transaction is in one shard: that of the message it settles. Its sends go
// to the same partition, or to another one if their key requires it.
func TestTransactionOfAPartitionedEntityIsInOneShard(t *testing.T) {
	inBubble(t, transactionOfAPartitionedEntityIsInOneShard)
}

func transactionOfAPartitionedEntityIsInOneShard(t *testing.T) {
	c := newForwardingCluster(t, 3)
	for i := range c.configs {
		c.configs[i].Reread = func(payload, _ []byte) (fsm.Message, error) {
			key, _, _ := strings.Cut(string(payload), " ")
			return fsm.Message{Payload: payload, PartitionKey: key}, nil
		}
	}
	c.startAll()
	in := c.make(fsm.QueueEntity, "in", partitioned)
	out := c.make(fsm.QueueEntity, "out", partitioned)
	plain := c.make(fsm.QueueEntity, "plain", nil)
	for i := range 12 {
		mustSend(t, c.nodes[i%3], in, fsm.Message{Payload: []byte(fmt.Sprint(i))})
	}
	got := lockAll(t, c.nodes[0], in, 12)
	i := slices.IndexFunc(got, func(d fsm.Delivery) bool { return shardIn(d.Lock.Sequence) != shardIn(got[0].Lock.Sequence) })
	two := fsm.Transaction{Settles: []fsm.SettleAt{kit.Complete(in, got[0].Lock, got[i].Lock)}}
	if code := transacted(c.nodes[0], two); code != fsm.NotAllowed {
		t.Errorf("two shards in one: %v", code)
	}
	for i, d := range got {
		key := fsm.SendTo{At: out, Messages: []fsm.Message{keyed(fmt.Sprint("k", i%4), fmt.Sprintf("k%d %d", i%4, d.Lock.Sequence))}}
		free := fsm.SendTo{At: out, Messages: []fsm.Message{{Payload: []byte("free")}}}
		tx := fsm.Transaction{
			Settles: []fsm.SettleAt{kit.Complete(in, d.Lock)},
			Sends:   []fsm.SendTo{key, free, kit.SendTo(plain, fmt.Sprint("p", i))},
		}
		if code := transacted(c.nodes[i%3], tx); code != fsm.OK {
			t.Errorf("transaction %d: %v", i, code)
		}
		if code := transacted(c.nodes[i%3], tx); code != fsm.MessageLockLost {
			t.Errorf("the same again: %v", code)
		}
	}
	through := fsm.Transaction{Sends: []fsm.SendTo{{At: plain, Via: &in, Messages: kit.SendTo(plain, "via").Messages}}}
	if code := transacted(c.nodes[0], through); code != fsm.OK {
		t.Errorf("through a partitioned queue: %v", code)
	}
	c.counted(plain, "what is plain has come", active(13))
	c.counted(out, "what is partitioned has come", active(24))
	c.counted(in, "nothing is left", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	shardsOf := map[string]int{}
	for _, d := range lockAll(t, c.nodes[1], out, 24) {
		if text := string(d.Payload); text != "free" {
			shardsOf[text] = shardIn(d.Lock.Sequence)
		}
	}
	for i, d := range got {
		if shard := shardsOf[fmt.Sprintf("k%d %d", i%4, d.Lock.Sequence)]; shard != shards.Hash(&out.Entity, fmt.Sprint("k", i%4)) {
			t.Errorf("key %d is in shard %d", i%4, shard)
		}
	}
}

// TestInterruptedChangesOfAPartitionedEntityAreCompleted: the next request that needs a partly created entity completes it, shard by
// shard; the catalog's leader completes an interrupted deletion.
func TestInterruptedChangesOfAPartitionedEntityAreCompleted(t *testing.T) {
	inBubble(t, interruptedChangesOfAPartitionedEntityAreCompleted)
}

func interruptedChangesOfAPartitionedEntityAreCompleted(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 3)
	c.startAll()
	settings := testSettings
	settings.EnablePartitioning = true
	router := c.nodes[0].router
	make := func(command fsm.CreateEntity) fsm.EntityRef {
		t.Helper()
		command.Namespace, command.Partition, command.Partitions = fsm.DefaultNamespace, 1, []fsm.PartitionID{1, 2, 3}
		if of, name, ok := fsm.SplitSubscriptionPath(command.Name); ok {
			topic := resolve(t, c.nodes[1], of)
			command.Partition, command.Partitions = 0, nil
			command.Topic, command.Name = topic.ID, fsm.SubscriptionPath(topic.Name, name)
		}
		kit.Must(router.Command(t.Context(), fsm.CatalogPartition, command))(t)
		return resolve(t, c.nodes[1], command.Name)
	}
	half := make(fsm.CreateEntity{Name: "half", Settings: settings})
	for range 6 {
		mustSend(t, c.nodes[1], half, fsm.Message{Payload: []byte("x")})
	}
	lockAll(t, c.nodes[2], half, 6)
	make(fsm.CreateEntity{Kind: fsm.TopicEntity, Name: "events", Settings: settings})
	all := make(fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Name: "events/subscriptions/all", Settings: testSettings})
	receiver := c.nodes[2].Router().Receiver(all, false)
	defer receiver.Close()
	if got := lockMessages(receiver, 1, 10*time.Millisecond); got.code != fsm.OK {
		t.Errorf("receive: %v", got.code)
	}
	if diff := cmp.Diff([]string{fsm.DefaultRuleName}, ruleNames(t, c.nodes[1], all.Name)); diff != "" {
		t.Error(diff)
	}
	kit.Must(router.Command(t.Context(), fsm.CatalogPartition, fsm.DeleteEntity{Entity: half.ID}))(t)
	clock.ahead.Add(int64(time.Minute)) // no member is still working on it
	for _, shard := range half.Shards {
		kit.Eventually(t, "the shard is dropped", func() bool {
			there := true
			c.nodes[0].replicas.Local(shard.Partition).View(func(m partition.Machine) { _, there = raftgroup.Queues(m).Settings(shard.Entity) })
			return !there
		})
	}
}

// TestPartitionedQueueSurvivesFailuresOfMembers sends to and receives from a partitioned queue while members die and
// return: accepted messages are received, and none is delivered twice unless its lock was lost.
func TestPartitionedQueueSurvivesFailuresOfMembers(t *testing.T) {
	inBubble(t, partitionedQueueSurvivesFailuresOfMembers)
}

func partitionedQueueSurvivesFailuresOfMembers(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", partitioned)
	const rounds, perRound = 3, 200
	want, got := map[string]int{}, map[string]int{}
	for round := range rounds {
		dead := round
		node, other := c.nodes[(dead+1)%3], c.nodes[(dead+2)%3]
		var sent sync.WaitGroup
		codes := make(chan fsm.Code, perRound)
		for i := range perRound {
			text := fmt.Sprintf("%d.%d", round, i)
			want[text] = 1
			sent.Add(1)
			node.Router().Send(at, []fsm.Message{{ID: text, Payload: []byte(text)}}, func(code fsm.Code) {
				codes <- code
				sent.Done()
			})
		}
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			c.kill(dead)
		}()
		receiver := other.Router().Receiver(at, false)
		for n := 0; n < perRound; {
			d := lockMessages(receiver, 20, waitMax)
			if d.code != fsm.OK || len(d.deliveries) == 0 {
				t.Fatalf("round %d: received %d: %v", round, n, d.code)
			}
			n += len(d.deliveries)
			for _, d := range d.deliveries {
				got[string(d.Payload)]++
			}
			done := make(chan []fsm.Code, 1)
			other.Router().Settle(at, fsm.SettleAll(d.deliveries, fsm.Complete), func(codes []fsm.Code) { done <- codes })
			if diff := cmp.Diff(make([]fsm.Code, len(d.deliveries)), <-done); diff != "" {
				t.Errorf("round %d: settle: %s", round, diff)
			}
		}
		receiver.Close()
		sent.Wait()
		close(codes)
		for code := range codes {
			if code != fsm.OK {
				t.Errorf("round %d: send: %v", round, code)
			}
		}
		<-killed
		c.start(dead)
		c.ready()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c.counted(at, "nothing is left", func(n fsm.Counts) bool { return n == fsm.Counts{} })
}
