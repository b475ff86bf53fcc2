package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

func partitioned(s *fsm.EntitySettings) { s.EnablePartitioning = true }

func both(changes ...func(*fsm.EntitySettings)) func(*fsm.EntitySettings) {
	return func(s *fsm.EntitySettings) {
		for _, change := range changes {
			change(s)
		}
	}
}

func keyed(key, payload string) fsm.Message {
	return fsm.Message{Payload: []byte(payload), PartitionKey: key}
}

func shardIn(n fsm.SequenceNumber) int {
	shard, _ := shards.Split(n)
	return shard
}

// lockAll locks messages until none arrives for a moment.
func lockAll(t *testing.T, node *Node, at fsm.EntityRef, want int) (all []fsm.Delivery) {
	t.Helper()
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	for len(all) < want {
		got := lockMessages(receiver, want-len(all), waitMax)
		if got.code != fsm.OK || len(got.deliveries) == 0 {
			t.Fatalf("locked %d of %d: %v", len(all), want, got.code)
		}
		all = append(all, got.deliveries...)
	}
	return all
}

// TestShardOfAKeyNeverChanges: the shard of a key is part of the stored data, so it must be the same in every release.
func TestShardOfAKeyNeverChanges(t *testing.T) {
	t.Parallel()
	e := fsm.Entity{Shards: make([]fsm.Shard, 16)}
	for key, want := range map[string]int{"": 5, "a": 12, "orders": 12, "session-7": 11, "ä": 2} {
		if got := shards.Hash(&e, key); got != want {
			t.Errorf("key %q is in shard %d, want %d", key, got, want)
		}
	}
	id, session := fsm.Message{ID: "m"}, fsm.Message{ID: "m", PartitionKey: "p", HasSession: true}
	for _, c := range []struct {
		message    fsm.Message
		duplicates bool
		key        string
		bound      bool
	}{
		{id, false, "", false}, {id, true, "m", true}, {keyed("p", ""), true, "p", true}, {session, true, "", true}, {fsm.Message{}, true, "", false},
	} {
		e.Settings.RequiresDuplicateDetection = c.duplicates
		if key, bound := e.ShardKey(&c.message); key != c.key || bound != c.bound {
			t.Errorf("%+v is bound by %q, %v", c.message, key, bound)
		}
	}
}

// TestPartitionedQueueBehavesAsOneQueue: a partitioned queue behaves as one queue through any member.
func TestPartitionedQueueBehavesAsOneQueue(t *testing.T) {
	inBubble(t, partitionedQueueBehavesAsOneQueue)
}

func partitionedQueueBehavesAsOneQueue(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", partitioned)
	if len(at.Shards) != 4 {
		t.Fatalf("shards %v", at.Shards)
	}
	const total = 40
	sent, want := map[int]int{}, []string{}
	for i := range total {
		numbers := make(chan []fsm.SequenceNumber, 1)
		text := fmt.Sprint(i)
		want = append(want, text)
		c.nodes[i%3].Router().Schedule(resolve(t, c.nodes[i%3], "ORDERS"), []fsm.Message{{Payload: []byte(text)}}, func(_ fsm.Code, n []fsm.SequenceNumber) {
			numbers <- n
		})
		sent[shardIn((<-numbers)[0])]++
	}
	if len(sent) != 4 {
		t.Errorf("the shards got %v", sent)
	}
	if counts := countMessages(t, c.nodes[1], at); counts.Active != total {
		t.Errorf("counted %+v", counts)
	}
	peeked, err := c.nodes[0].Router().Peek(t.Context(), at, 0, total, 1<<20)
	if err != nil || len(peeked) != total || !slices.IsSortedFunc(peeked, func(a, b fsm.Delivery) int { return int(a.Lock.Sequence) - int(b.Lock.Sequence) }) {
		t.Errorf("peeked at %d, %v", len(peeked), err)
	}
	some, err := c.nodes[1].Router().Peek(t.Context(), at, peeked[17].Lock.Sequence, 5, 1<<20)
	if diff := cmp.Diff(payloads(peeked[17:22]), payloads(some)); err != nil || diff != "" {
		t.Errorf("peeked from the middle: %v %s", err, diff)
	}
	got := lockAll(t, c.nodes[2], at, total)
	texts := payloads(got)
	slices.Sort(texts)
	slices.Sort(want)
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
	// Locks are renewed and settled through another member, by their tokens.
	locks := make([]fsm.LockID, total)
	settlements := make([]fsm.Settlement, total)
	for i := range got {
		token := c.nodes[2].Router().LockToken(at, got[i].Lock)
		id, ok := c.nodes[0].Router().ParseLockToken(at, token)
		if !ok || id != got[i].Lock {
			t.Fatalf("token came back as %v, %v", id, ok)
		}
		locks[i], settlements[i] = id, fsm.Settlement{Lock: id, Verb: fsm.Complete}
	}
	settlements[7].Verb, settlements[8].Verb = fsm.Defer, fsm.DeadLetter
	renewed := make(chan []fsm.Code, 1)
	unknown := fsm.LockID{Sequence: 9 << fsm.ShardShift}
	c.nodes[0].Router().Renew(at, slices.Concat(locks, []fsm.LockID{unknown}), func(codes []fsm.Code, untils []fsm.Instant) {
		if untils[0] == 0 {
			codes[0] = fsm.Internal
		}
		renewed <- codes
	})
	oks := append(make([]fsm.Code, total), fsm.MessageLockLost)
	if diff := cmp.Diff(oks, <-renewed); diff != "" {
		t.Error(diff)
	}
	settled := make(chan []fsm.Code, 1)
	c.nodes[1].Router().Settle(at, settlements, func(codes []fsm.Code) { settled <- codes })
	if diff := cmp.Diff(oks[:total], <-settled); diff != "" {
		t.Error(diff)
	}
	fetched := make(chan []fsm.Delivery, 1)
	c.nodes[1].Router().Fetch(at, []fsm.SequenceNumber{locks[7].Sequence, locks[6].Sequence}, true, func(_ fsm.Code, d []fsm.Delivery) { fetched <- d })
	if d := <-fetched; len(d) != 1 || d[0].Lock.Sequence != locks[7].Sequence {
		t.Errorf("fetched %+v", d)
	}
	if n, err := c.nodes[1].Router().In(fsm.DefaultNamespace).RedriveEntity(t.Context(), "orders", []fsm.SequenceNumber{locks[8].Sequence}); n != 1 || err != nil {
		t.Errorf("redriven %d, %v", n, err)
	}
	if n, err := c.nodes[1].Router().In(fsm.DefaultNamespace).PurgeEntity(t.Context(), "orders", fsm.MainQueue, time.Time{}, 10); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if counts := countMessages(t, c.nodes[2], at); counts != (fsm.Counts{}) {
		t.Errorf("left over: %+v", counts)
	}
}

// TestMessagesWithOneKeyStayInOrder: messages with one key are in one shard and in order, and a batch goes to one shard.
func TestMessagesWithOneKeyStayInOrder(t *testing.T) { inBubble(t, messagesWithOneKeyStayInOrder) }

func messagesWithOneKeyStayInOrder(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", partitioned)
	for i := range 20 {
		mustSend(t, c.nodes[i%3], at, keyed(fmt.Sprint("k", i%5), fmt.Sprintf("k%d %d", i%5, i/5)), keyed(fmt.Sprint("k", i%5), fmt.Sprintf("k%d %d+", i%5, i/5)))
	}
	of, last := map[string]int{}, map[string]string{}
	for _, d := range lockAll(t, c.nodes[0], at, 40) {
		key, order := string(d.Payload[:2]), string(d.Payload[3:])
		if shard, known := of[key]; known && shard != shardIn(d.Lock.Sequence) {
			t.Errorf("key %s is in shards %d and %d", key, shard, shardIn(d.Lock.Sequence))
		}
		of[key] = shardIn(d.Lock.Sequence)
		if order <= last[key] {
			t.Errorf("key %s: %s after %s", key, order, last[key])
		}
		last[key] = order
	}
	if code := sendCode(c.nodes[0], at, keyed("a", "1"), keyed("b", "2")); code != fsm.InvalidArgument {
		t.Errorf("two keys in a batch: %v", code)
	}
	if code := sendCode(c.nodes[0], at, keyed("a", "1"), fsm.Message{Payload: []byte("2")}); code != fsm.InvalidArgument {
		t.Errorf("a key and none in a batch: %v", code)
	}
	// With duplicate detection, the message id selects the shard, so that the shard knows the first message.
	once := c.make(fsm.QueueEntity, "once", both(partitioned, func(s *fsm.EntitySettings) { s.RequiresDuplicateDetection = true }))
	for i := range 9 {
		mustSend(t, c.nodes[i%3], once, fsm.Message{ID: fmt.Sprint(i % 3), Payload: []byte("x")})
	}
	if counts := countMessages(t, c.nodes[0], once); counts.Active != 3 {
		t.Errorf("counted %+v", counts)
	}
}

// TestReceiverGetsMessagesFromAllShards: a link gets messages from all shards in turn, waits at all of them, and returns
// messages locked in excess: they are available to other links immediately, with no attempt counted.
func TestReceiverGetsMessagesFromAllShards(t *testing.T) {
	inBubble(t, receiverGetsMessagesFromAllShards)
}

func receiverGetsMessagesFromAllShards(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", partitioned)
	receiver := c.nodes[0].Router().Receiver(at, false)
	for i := range 4 { // whichever shard gets one
		waiting := make(chan lockedMessages, 1)
		receiver.Lock(1, 1<<20, time.Minute, func(code fsm.Code, d []fsm.Delivery) { waiting <- lockedMessages{code, d} })
		text := fmt.Sprint("w", i)
		sendAll(t, c.nodes[1], at, fsm.Message{Payload: []byte(text)})
		got := <-waiting
		if diff := cmp.Diff([]string{text}, payloads(got.deliveries)); diff != "" {
			t.Fatalf("%v %s", got.code, diff)
		}
		if code := settleMessage(t, c.nodes[2], at, got.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
			t.Errorf("settle: %v", code)
		}
	}
	if got := lockMessages(receiver, 1, 10*time.Millisecond); got.code != fsm.OK || len(got.deliveries) != 0 {
		t.Errorf("from nothing: %+v", got)
	}
	waiting := make(chan lockedMessages, 1)
	receiver.Lock(1, 1<<20, time.Minute, func(code fsm.Code, d []fsm.Delivery) { waiting <- lockedMessages{code, d} })
	receiver.Cancel()
	if got := <-waiting; got.code != fsm.OK || len(got.deliveries) != 0 {
		t.Errorf("cancelled: %+v", got)
	}
	for i := range 40 {
		sendAll(t, c.nodes[1], at, fsm.Message{Payload: []byte(fmt.Sprint(i))})
	}
	// Eight messages, one by one, come from all four shards, unless one was slow: the link does not wait
	// for it. Then they are released, which counts no attempt, and the check repeats.
	kit.Eventually(t, "the shards take turns", func() bool {
		turns, taken := map[int]int{}, []fsm.Delivery{}
		for range 8 {
			got := lockMessages(receiver, 1, waitMax)
			if got.code != fsm.OK || len(got.deliveries) != 1 {
				t.Fatalf("one by one: %+v", got)
			}
			turns[shardIn(got.deliveries[0].Lock.Sequence)]++
			taken = append(taken, got.deliveries...)
		}
		if len(turns) == 4 {
			return true
		}
		t.Logf("8 messages one by one: of shards %v", turns)
		released := make(chan []fsm.Code, 1)
		c.nodes[0].Router().Settle(at, fsm.SettleAll(taken, fsm.Release), func(codes []fsm.Code) { released <- codes })
		if diff := cmp.Diff(make([]fsm.Code, len(taken)), <-released); diff != "" {
			t.Fatal(diff)
		}
		return false
	})
	// The link stays and asks for no more: all other messages are available to another link.
	for _, d := range lockAll(t, c.nodes[2], at, 32) {
		if d.FailedDeliveries != 0 {
			t.Errorf("%s counts %d attempts", d.Payload, d.FailedDeliveries)
		}
	}
	receiver.Close()
	if got := lockMessages(receiver, 1, time.Minute); got.code != fsm.ServerBusy {
		t.Errorf("closed: %v", got.code)
	}
}

// TestPartitionedReceiveAndDeleteLosesNothing when the link ends.
func TestPartitionedReceiveAndDeleteLosesNothing(t *testing.T) {
	kit.Long(t)
	inBubble(t, partitionedReceiveAndDeleteLosesNothing)
}

func partitionedReceiveAndDeleteLosesNothing(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", partitioned)
	want := map[string]int{}
	for i := range 60 {
		want[fmt.Sprint(i)] = 1
		sendAll(t, c.nodes[i%3], at, fsm.Message{Payload: []byte(fmt.Sprint(i))})
	}
	got := map[string]int{}
	for i := 0; len(got) < len(want); i++ {
		receiver := c.nodes[i%3].Router().Receiver(at, true)
		d := lockMessages(receiver, 3, waitMax)
		receiver.Close()
		if d.code != fsm.OK || len(d.deliveries) == 0 {
			t.Fatalf("received %d: %v", len(got), d.code)
		}
		for i := range d.deliveries {
			got[string(d.deliveries[i].Payload)]++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c.counted(at, "nothing is left", func(n fsm.Counts) bool { return n == fsm.Counts{} })
}

// TestPartitionedWithoutALeader: a partition without a leader delays only the operations that need it;
// they continue when it has a leader again.
func TestPartitionedWithoutALeader(t *testing.T) { inBubble(t, partitionedWithoutALeader) }

func partitionedWithoutALeader(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", partitioned)
	want := map[string]int{}
	send := func(i int) {
		text := fmt.Sprint(i)
		want[text] = 1
		sendAll(t, c.any(), at, fsm.Message{Payload: []byte(text)})
	}
	for i := range 20 {
		send(i)
	}
	dead := c.leader(at.Shards[1].Partition)
	c.kill(dead)
	for i := range 20 {
		send(20 + i)
	}
	got := map[string]int{}
	receiver := c.any().Router().Receiver(at, false)
	defer receiver.Close()
	for len(got) < 40 {
		d := lockMessages(receiver, 10, waitMax)
		if d.code != fsm.OK || len(d.deliveries) == 0 {
			t.Fatalf("received %d: %v", len(got), d.code)
		}
		for _, d := range d.deliveries {
			got[string(d.Payload)]++
			if code := settleMessage(t, c.any(), at, d.Lock, fsm.Complete); code != fsm.OK {
				t.Errorf("settle %s: %v", d.Payload, code)
			}
		}
		if len(got) > 20 && c.nodes[dead] == nil {
			c.start(dead)
			c.ready()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c.counted(at, "nothing is left", func(n fsm.Counts) bool { return n == fsm.Counts{} })
}

// TestShardWithoutALeaderDelaysNoOther: a shard without a leader does not stop receives from the other shards, or
// sends to them.
func TestShardWithoutALeaderDelaysNoOther(t *testing.T) {
	kit.Long(t)
	inBubble(t, shardWithoutALeaderDelaysNoOther)
}

func shardWithoutALeaderDelaysNoOther(t *testing.T) {
	c := newBubbleCluster(t, 3, 3)
	for i := range c.configs {
		c.configs[i].Replication = 1 // each partition on one member
	}
	c.startAll()
	at := c.make(fsm.QueueEntity, "orders", partitioned)
	for i := range 9 {
		sendAll(t, c.nodes[0], at, fsm.Message{Payload: []byte(fmt.Sprint(i))})
	}
	silent := 1
	dead := c.leader(at.Shards[silent].Partition)
	node := c.nodes[(dead+1)%3]
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	c.kill(dead)
	seen := map[int]int{}
	for n := 0; n < 6; {
		start := time.Now()
		d := lockMessages(receiver, 1, waitMax)
		if d.code != fsm.OK || len(d.deliveries) != 1 || time.Since(start) > waitMax/2 {
			t.Fatalf("after %d in %s: %+v", n, time.Since(start), d)
		}
		n++
		seen[shardIn(d.deliveries[0].Lock.Sequence)]++
		if code := settleMessage(t, node, at, d.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
			t.Errorf("settle: %v", code)
		}
	}
	if diff := cmp.Diff(map[int]int{0: 3, 2: 3}, seen); diff != "" {
		t.Error(diff)
	}
	if d := lockMessages(receiver, 1, 50*time.Millisecond); len(d.deliveries) != 0 {
		t.Errorf("received %+v", d)
	}
	// One send detects the failure; later sends use other shards.
	for range 3 {
		node.Router().Send(at, []fsm.Message{{Payload: []byte("late")}}, func(fsm.Code) {})
	}
	kit.Eventually(t, "it has found out", func() bool { return node.router.HasNoLeader(at.Shards[silent].Partition) })
	for range 6 {
		mustSend(t, node, at, fsm.Message{Payload: []byte("x")})
	}
	peeked, err := node.Router().Peek(t.Context(), at, 0, 100, 1<<20)
	if err != nil || len(peeked) < 6 {
		t.Errorf("peeked at %d, %v", len(peeked), err)
	}
	c.start(dead)
	c.ready()
	c.counted(at, "what waited has come", active(12))
}

// TestPartitionedEntitiesRefuseWhatTheyCannotHave: unsupported settings are refused on request, with an explanation.
func TestPartitionedEntitiesRefuseWhatTheyCannotHave(t *testing.T) {
	inBubble(t, partitionedEntitiesRefuseWhatTheyCannotHave)
}

func partitionedEntitiesRefuseWhatTheyCannotHave(t *testing.T) {
	c := newBubbleCluster(t, 1, 2)
	c.startAll()
	router := c.nodes[0].Router()
	topic := c.make(fsm.TopicEntity, "events", partitioned)
	if _, err := router.In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.TopicEntity, "events", testSettings); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("not any more: %v", err)
	}
	path := fsm.SubscriptionPath(topic.Name, "all")
	settings := testSettings
	settings.EnablePartitioning = true
	if _, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, path, settings, nil, nil); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("a subscription by itself: %v", err)
	}
	if _, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, path, testSettings, nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := router.In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.SubscriptionEntity, path, settings); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("a subscription by itself later: %v", err)
	}
}
