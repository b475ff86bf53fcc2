package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/cluster/forwarding"
	"github.com/peeklock/peeklock/fsm"
)

func TestForwardToAnotherPartition(t *testing.T) { inBubble(t, forwardToAnotherPartition) }

func forwardToAnotherPartition(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	sink := c.make(fsm.QueueEntity, "sink", nil)
	source := c.make(fsm.QueueEntity, "source", forwards("SINK"))
	if sink.Partition == source.Partition {
		t.Fatal("both are in one partition")
	}
	for i, node := range c.nodes {
		sendMessage(t, node, source, fmt.Sprintf("m%d", i))
	}
	got := c.take(sink, 3)
	want := []taken{
		{"m0", 1, []fsm.Patch{{Enqueued: 1}}},
		{"m1", 1, []fsm.Patch{{Enqueued: 2}}},
		{"m2", 1, []fsm.Patch{{Enqueued: 3}}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatal(diff)
	}
	c.counted(source, "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	receiver := c.nodes[1].Router().Receiver(source, false)
	defer receiver.Close()
	if got := lockMessages(receiver, 1, waitMax); got.code != fsm.NotAllowed {
		t.Errorf("receive from a queue that forwards: %v", got.code)
	}
	var total forwarding.Stats
	for _, node := range c.nodes {
		total.Messages += node.Forwarding().Messages
	}
	if total.Messages != 3 {
		t.Errorf("%d messages are said to have been forwarded", total.Messages)
	}
}

// TestMessageIsForwardedFourTimesAtMost forwards a message four times. The fifth queue, which would forward it again, keeps it as a
// dead letter.
func TestMessageIsForwardedFourTimesAtMost(t *testing.T) {
	inBubble(t, messageIsForwardedFourTimesAtMost)
}

func messageIsForwardedFourTimesAtMost(t *testing.T) {
	c := newForwardingCluster(t, 3)
	c.startAll()
	next := c.make(fsm.QueueEntity, "q6", nil)
	var queues []fsm.EntityRef // q5 to q1
	for i := 5; i >= 1; i-- {
		next = c.make(fsm.QueueEntity, fmt.Sprintf("q%d", i), forwards(next.Name))
		queues = append(queues, next)
	}
	sendMessage(t, c.nodes[0], queues[4], "from the first")
	sendMessage(t, c.nodes[1], queues[3], "from the second")
	if got := c.take(resolve(t, c.nodes[0], "q6"), 1); len(got) != 1 || got[0].Payload != "from the second" || got[0].Hops != 4 {
		t.Errorf("at the end of the chain: %+v", got)
	}
	got := c.take(sub(queues[0], fsm.DeadLetterQueue), 1)
	if len(got) != 1 || got[0].Payload != "from the first" || !slices.Equal(reasons(got), []string{"MaxTransferHopCountExceeded"}) {
		t.Errorf("dead letters of the fifth: %+v", got)
	}
	for _, at := range queues {
		c.counted(at, "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	}
}

func TestForwardingCycleDeadLettersAtTheHopLimit(t *testing.T) {
	inBubble(t, forwardingCycleDeadLettersAtTheHopLimit)
}

func forwardingCycleDeadLettersAtTheHopLimit(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	a := c.make(fsm.QueueEntity, "a", nil)
	b := c.make(fsm.QueueEntity, "b", forwards("a"))
	c.change(a, forwards("b"))
	for i := range 20 {
		sendMessage(t, c.nodes[i%3], []fsm.EntityRef{a, b}[i%2], fmt.Sprintf("m%d", i))
	}
	for _, at := range []fsm.EntityRef{a, b} {
		c.counted(at, "dead letters", func(n fsm.Counts) bool { return n == fsm.Counts{DeadLetter: 10, Bytes: n.Bytes} })
		for _, reason := range reasons(c.take(sub(at, fsm.DeadLetterQueue), 10)) {
			if reason != "MaxTransferHopCountExceeded" {
				t.Errorf("%s: %q", at.Name, reason)
			}
		}
	}
}

// A queue may forward to itself, as in the service.
func TestForwardingToItselfDeadLettersAtTheHopLimit(t *testing.T) {
	inBubble(t, forwardingToItselfDeadLettersAtTheHopLimit)
}

func forwardingToItselfDeadLettersAtTheHopLimit(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	a := c.make(fsm.QueueEntity, "a", nil)
	c.change(a, forwards("a"))
	b := c.make(fsm.QueueEntity, "b", forwards("b"))
	for _, at := range []fsm.EntityRef{a, b} {
		for i := range 10 {
			sendMessage(t, c.nodes[i%3], at, fmt.Sprintf("m%d", i))
		}
		c.counted(at, "dead letters", func(n fsm.Counts) bool { return n == fsm.Counts{DeadLetter: 10, Bytes: n.Bytes} })
		for _, reason := range reasons(c.take(sub(at, fsm.DeadLetterQueue), 10)) {
			if reason != "MaxTransferHopCountExceeded" {
				t.Errorf("%s: %q", at.Name, reason)
			}
		}
	}
}

// TestForwardDeadLetters checks that the dead-letter reason of a message is kept, and that its source is added.
func TestForwardDeadLetters(t *testing.T) { inBubble(t, forwardDeadLetters) }

func forwardDeadLetters(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	morgue := c.make(fsm.QueueEntity, "morgue", nil)
	c.make(fsm.TopicEntity, "news", nil)
	subscription := c.make(fsm.SubscriptionEntity, fsm.SubscriptionPath("news", "all"), forwardsDeadLetters("morgue"))
	queue := c.make(fsm.QueueEntity, "work", forwardsDeadLetters("morgue"))
	for _, at := range []fsm.EntityRef{queue, subscription} {
		to := at
		if at.Kind == fsm.SubscriptionEntity {
			to = resolve(t, c.nodes[0], "news")
		}
		sendMessage(t, c.nodes[1], to, "to "+at.Name)
		receiver := c.nodes[0].Router().Receiver(at, false)
		got := lockMessages(receiver, 1, waitMax)
		if len(got.deliveries) != 1 {
			t.Fatalf("lock: %+v", got)
		}
		settled := make(chan []fsm.Code, 1)
		c.nodes[2].Router().Settle(at, []fsm.Settlement{{
			Lock: got.deliveries[0].Lock, Verb: fsm.DeadLetter, Reason: "Spoiled", Description: "smells",
		}}, func(codes []fsm.Code) { settled <- codes })
		if codes := <-settled; codes[0] != fsm.OK {
			t.Fatal(codes)
		}
		receiver.Close()
		deadLettered := c.take(morgue, 1)
		want := []taken{{"to " + at.Name, 1, []fsm.Patch{
			{DeadLetter: true, Reason: "Spoiled", Description: "smells"},
			{Enqueued: 1, Source: at.Name},
		}}}
		if diff := cmp.Diff(want, deadLettered, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		c.counted(at, "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	}
}

// TestMessageThatItsDestinationRefusesIsDeadLettered checks that a message that its destination refuses goes to the dead-letter queue
// of its source, with the reason, and that others of its batch arrive.
func TestMessageThatItsDestinationRefusesIsDeadLettered(t *testing.T) {
	inBubble(t, messageThatItsDestinationRefusesIsDeadLettered)
}

func messageThatItsDestinationRefusesIsDeadLettered(t *testing.T) {
	c := newForwardingCluster(t, 3)
	c.startAll()
	large := strings.Repeat("x", 2000)
	small := func(s *fsm.EntitySettings) { s.MaxMessageBytes = 1000 }
	for name, x := range map[string]struct {
		settings func(*fsm.EntitySettings)
		prepare  func(sink fsm.EntityRef)
		reason   string
	}{
		"deleted": {func(*fsm.EntitySettings) {}, c.remove, "MessagingEntityNotFound"},
		"disabled": {func(*fsm.EntitySettings) {}, func(sink fsm.EntityRef) {
			c.change(sink, func(s *fsm.EntitySettings) { s.Status = fsm.SendDisabled })
		}, "MessagingEntityDisabled"},
		"full": {func(s *fsm.EntitySettings) { s.MaxBytes = 1 << 20 }, func(sink fsm.EntityRef) {
			mustSend(t, c.nodes[0], sink, fsm.Message{Payload: make([]byte, 1<<20-100)})
		}, "QuotaExceeded"},
		"small": {small, func(fsm.EntityRef) {}, "MessageSizeExceeded"},
	} {
		sink := c.make(fsm.QueueEntity, "sink-"+name, x.settings)
		source := c.make(fsm.QueueEntity, "source-"+name, forwards(sink.Name))
		x.prepare(sink)
		mustSend(t, c.nodes[1], source, fsm.Message{Payload: []byte(large)})
		got := c.take(sub(source, fsm.DeadLetterQueue), 1)
		if !slices.Equal(reasons(got), []string{x.reason}) || got[0].Payload != large {
			t.Errorf("%s: %v", name, reasons(got))
		}
		if name == "small" || name == "full" { // messages that fit are forwarded, also of the same batch
			mustSend(t, c.nodes[2], source, fsm.Message{ID: "1", Payload: []byte("1")}, fsm.Message{Payload: []byte(large)}, fsm.Message{ID: "2", Payload: []byte("2")})
			c.counted(sub(source, fsm.MainQueue), "one more is refused", func(n fsm.Counts) bool { return n.DeadLetter == 1 && n.Transfer == 0 })
			left := c.take(sink, 3)
			if n := len(left); n < 2 || left[n-2].Payload != "1" || left[n-1].Payload != "2" {
				t.Errorf("%s: %d arrived", name, n)
			}
		}
	}
}

// TestForwardingFollowsARecreatedDestination checks that a name that was deleted and created again is another entity, and the
// destination from then on.
func TestForwardingFollowsARecreatedDestination(t *testing.T) {
	inBubble(t, forwardingFollowsARecreatedDestination)
}

func forwardingFollowsARecreatedDestination(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	sink := c.make(fsm.QueueEntity, "sink", nil)
	source := c.make(fsm.QueueEntity, "source", forwards("sink"))
	sendMessage(t, c.nodes[0], source, "first")
	if got := c.take(sink, 1); len(got) != 1 {
		t.Fatal("nothing came")
	}
	c.remove(sink)
	sendMessage(t, c.nodes[1], source, "second")
	if got := reasons(c.take(sub(source, fsm.DeadLetterQueue), 1)); !slices.Equal(got, []string{"MessagingEntityNotFound"}) {
		t.Fatal(got)
	}
	again := c.make(fsm.QueueEntity, "sink", nil)
	if again.ID == sink.ID {
		t.Fatal("the id was used again")
	}
	sendMessage(t, c.nodes[2], source, "third")
	if got := c.take(again, 1); len(got) != 1 || got[0].Payload != "third" {
		t.Fatalf("%+v", got)
	}
	c.counted(source, "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
}

// TestForwardingCompletesAnInterruptedCreation checks a destination that only the catalog knows, because its creation was
// interrupted. Forwarding completes the creation, as a sender does.
func TestForwardingCompletesAnInterruptedCreation(t *testing.T) {
	inBubble(t, forwardingCompletesAnInterruptedCreation)
}

func forwardingCompletesAnInterruptedCreation(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	sink := c.half(fsm.CreateEntity{Name: "sink", Partition: 1})
	source := c.make(fsm.QueueEntity, "source", forwards("sink"))
	sendMessage(t, c.nodes[0], source, "x")
	c.counted(sink, "one", active(1)) // a receiver would complete it too
	if got := c.take(sink, 1); len(got) != 1 || got[0].Payload != "x" {
		t.Fatalf("%+v", got)
	}
}

// TestForwardSettingChangesMeanwhile checks that a batch that is under way goes to its original destination,
// and that messages that are still queued follow the new setting.
func TestForwardSettingChangesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{"changed": "second", "removed": ""} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := newForwardingCluster(t, 2)
				gate, reached := make(chan struct{}), make(chan struct{})
				var once atomic.Bool
				for i := range c.configs {
					c.configs[i].Reread = func(payload, patches []byte) (fsm.Message, error) {
						if once.CompareAndSwap(false, true) {
							close(reached)
						}
						<-gate
						return readWhole(payload, patches)
					}
				}
				c.startAll()
				first, second := c.make(fsm.QueueEntity, "first", nil), c.make(fsm.QueueEntity, "second", nil)
				source := c.make(fsm.QueueEntity, "source", forwards("first"))
				sendMessage(t, c.nodes[0], source, "out")
				<-reached
				sendMessage(t, c.nodes[1], source, "left")
				c.change(source, forwards(after))
				close(gate)
				if got := c.take(first, 1); len(got) != 1 || got[0].Payload != "out" {
					t.Errorf("the batch that was out: %+v", got)
				}
				where := second
				if after == "" {
					where = source
				}
				if got := c.take(where, 1); len(got) != 1 || got[0].Payload != "left" {
					t.Errorf("what was left: %+v", got)
				}
				for _, at := range []fsm.EntityRef{first, second, source} {
					c.counted(at, "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
				}
			})
		})
	}
}

// TestForwardThroughATopic forwards through a queue, a topic, a subscription and a queue.
func TestForwardThroughATopic(t *testing.T) { inBubble(t, forwardThroughATopic) }

func forwardThroughATopic(t *testing.T) {
	c := newForwardingCluster(t, 3)
	for i := range c.configs {
		c.configs[i].Reread = func(payload, _ []byte) (fsm.Message, error) {
			return coloured(strings.SplitN(string(payload), " ", 2)[0], string(payload)), nil
		}
	}
	c.startAll()
	sink := c.make(fsm.QueueEntity, "sink", nil)
	c.make(fsm.TopicEntity, "topic", nil)
	rule := sqlRule("r", "color = 'red'")
	settings := testSettings
	settings.ForwardTo = "sink"
	if _, err := c.nodes[0].Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, fsm.SubscriptionPath("topic", "red"), settings, &rule, nil); err != nil {
		t.Fatal(err)
	}
	source := c.make(fsm.QueueEntity, "source", forwards("topic"))
	mustSend(t, c.nodes[1], source, fsm.Message{ID: "1", Payload: []byte("blue 1")})
	mustSend(t, c.nodes[2], source, fsm.Message{ID: "2", Payload: []byte("red 2")})
	want := []taken{{"red 2", 2, []fsm.Patch{{Enqueued: 2}}}}
	if diff := cmp.Diff(want, c.take(sink, 1), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	c.counted(resolve(t, c.nodes[0], "topic/Subscriptions/red"), "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
}
