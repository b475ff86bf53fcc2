package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// forwardFailure is one cause for which a message cannot be forwarded.
type forwardFailure struct {
	destination func(*fsm.EntitySettings)              // nil: the source itself
	prepare     func(c *testCluster, at fsm.EntityRef) // once a source forwards to it
	size        int                                    // of the message
	reason      string
}

func forwardFailures() map[string]forwardFailure {
	plain := func(*fsm.EntitySettings) {}
	status := func(status fsm.EntityStatus) func(*testCluster, fsm.EntityRef) {
		return func(c *testCluster, at fsm.EntityRef) {
			c.change(at, func(s *fsm.EntitySettings) { s.Status = status })
		}
	}
	return map[string]forwardFailure{
		"missing":       {plain, (*testCluster).remove, 10, "MessagingEntityNotFound"},
		"disabled":      {plain, status(fsm.Disabled), 10, "MessagingEntityDisabled"},
		"send-disabled": {plain, status(fsm.SendDisabled), 10, "MessagingEntityDisabled"},
		"full": {func(s *fsm.EntitySettings) { s.MaxBytes = 1 << 20 }, func(c *testCluster, at fsm.EntityRef) {
			mustSend(c.t, c.any(), at, fsm.Message{Payload: make([]byte, 1<<20-100)})
		}, 2000, "QuotaExceeded"},
		"small":    {func(s *fsm.EntitySettings) { s.MaxMessageBytes = 1000 }, nil, 2000, "MessageSizeExceeded"},
		"sessions": {func(s *fsm.EntitySettings) { s.RequiresSession = true }, nil, 10, "Session ID is null"},
		"hops":     {nil, nil, 10, "MaxTransferHopCountExceeded"},
	}
}

// TestFailedForwardingIsDeadLetteredAtItsSource checks every cause at a queue, a subscription and a partitioned queue: the message is in the
// dead-letter queue of the source with the reason and the name of the destination, and stays there until it is received, while the
// other dead letters of the source are forwarded.
func TestFailedForwardingIsDeadLetteredAtItsSource(t *testing.T) {
	inBubble(t, failedForwardingIsDeadLetteredAtItsSource)
}

func failedForwardingIsDeadLetteredAtItsSource(t *testing.T) {
	c := newForwardingCluster(t, 3)
	c.startAll()
	morgue := c.make(fsm.QueueEntity, "morgue", nil)
	for cause, x := range forwardFailures() {
		for kind, partition := range map[string]func(*fsm.EntitySettings){"queue": nil, "subscription": nil, "partitioned": partitioned} {
			name := kind + "-" + cause
			var source, entry fsm.EntityRef
			if kind == "subscription" {
				entry = c.make(fsm.TopicEntity, name, nil)
				source = c.make(fsm.SubscriptionEntity, fsm.SubscriptionPath(name, "all"), nil)
			} else {
				source = c.make(fsm.QueueEntity, name, partition)
				entry = source
			}
			sendMessage(t, c.nodes[0], entry, "own "+name)
			c.deadLetterOne(source)
			to := entry
			if x.destination != nil {
				to = c.make(fsm.QueueEntity, "to-"+name, x.destination)
			}
			c.change(source, func(s *fsm.EntitySettings) {
				s.ForwardTo, s.ForwardDeadLettersTo = to.Name, morgue.Name
				if partition != nil {
					partition(s)
				}
			})
			if x.prepare != nil {
				x.prepare(c, to)
			}
			payload := strings.Repeat("x", x.size)
			mustSend(t, c.nodes[1], entry, fsm.Message{Payload: []byte(payload)})
			if got := c.take(morgue, 1); len(got) != 1 || got[0].Payload != "own "+name {
				t.Errorf("%s: own dead letter at its destination: %+v", name, got)
			}
			c.counted(source, "one dead letter", func(n fsm.Counts) bool { return n.DeadLetter == 1 && n.Transfer == 0 && n.TransferDeadLetter == 0 })
			got := c.take(sub(source, fsm.DeadLetterQueue), 1)
			if len(got) != 1 || got[0].Payload != payload || !slices.Equal(reasons(got), []string{x.reason}) {
				t.Errorf("%s: dead letters of the source have reasons %q, want %q", name, reasons(got), x.reason)
				continue
			}
			if last := got[0].Patches[len(got[0].Patches)-1]; !strings.Contains(last.Description, " "+to.Name) {
				t.Errorf("%s: description %q, want the name of the destination %s", name, last.Description, to.Name)
			}
		}
	}
	if n := countMessages(t, c.any(), morgue); n.Active != 0 {
		t.Errorf("%d messages that could not be forwarded were forwarded as dead letters", n.Active)
	}
}

// deadLetterOne receives one message of an entity and dead-letters it.
func (c *testCluster) deadLetterOne(at fsm.EntityRef) {
	c.t.Helper()
	receiver := c.any().Router().Receiver(at, false)
	defer receiver.Close()
	got := lockMessages(receiver, 1, waitMax)
	if len(got.deliveries) != 1 {
		c.t.Fatalf("lock at %s: %+v", at.Name, got)
	}
	settled := make(chan []fsm.Code, 1)
	c.any().Router().Settle(at, []fsm.Settlement{{Lock: got.deliveries[0].Lock, Verb: fsm.DeadLetter, Reason: "Spoiled"}},
		func(codes []fsm.Code) { settled <- codes })
	if codes := <-settled; codes[0] != fsm.OK {
		c.t.Fatal(codes)
	}
}

// TestFailedForwardingWhileItsLeaderDies checks that messages whose destination is disabled are dead-lettered once each, although the
// leader of their source fails while a batch is in flight.
func TestFailedForwardingWhileItsLeaderDies(t *testing.T) {
	inBubble(t, failedForwardingWhileItsLeaderDies)
}

func failedForwardingWhileItsLeaderDies(t *testing.T) {
	const total = 1000
	c, v := newForwardingCluster(t, 2), newReadGate(total/4+batchMessagesMax/2)
	for i := range c.configs {
		c.configs[i].Reread = v.of(i)
	}
	c.startAll()
	sink, morgue := c.make(fsm.QueueEntity, "sink", nil), c.make(fsm.QueueEntity, "morgue", nil)
	source := c.make(fsm.QueueEntity, "source", nil)
	c.change(sink, func(s *fsm.EntitySettings) { s.Status = fsm.SendDisabled })
	want := c.fillQueue(source, total)
	c.change(source, func(s *fsm.EntitySettings) { s.ForwardTo, s.ForwardDeadLettersTo = sink.Name, morgue.Name })
	<-v.shut
	dead, ended := c.leader(source.Partition), make(chan struct{})
	dying := c.nodes[dead]
	go func() {
		defer close(ended)
		c.kill(dead)
	}()
	v.open(10 * total)
	kit.Eventually(t, "the leader closes", func() bool { return !dying.startTask(func(context.Context) {}) })
	v.release(dead, true)
	<-ended
	c.counted(source, "all are dead letters", func(n fsm.Counts) bool { return n.DeadLetter == total && n.Transfer == 0 })
	got := map[string]int{}
	for _, m := range c.take(sub(source, fsm.DeadLetterQueue), 2*total) {
		got[m.Payload]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%d of %d are dead letters: %s", len(got), total, diff)
	}
	for _, at := range []fsm.EntityRef{sink, morgue} {
		if n := countMessages(t, c.any(), at).Active; n != 0 {
			t.Errorf("%d messages are in %s", n, at.Name)
		}
	}
}

// TestRefusedDeadLettersStayAndAreRetried checks that dead letters that their destination refuses stay, delay those behind them by a
// backoff at most, and arrive once the destination accepts them.
func TestRefusedDeadLettersStayAndAreRetried(t *testing.T) {
	inBubble(t, refusedDeadLettersStayAndAreRetried)
}

func refusedDeadLettersStayAndAreRetried(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	accepts := func(*fsm.EntitySettings) {}
	for name, refuses := range map[string]func(*fsm.EntitySettings){
		"small":    func(s *fsm.EntitySettings) { s.MaxMessageBytes = 1000 },
		"disabled": func(s *fsm.EntitySettings) { s.Status = fsm.SendDisabled },
		"full":     func(s *fsm.EntitySettings) { s.MaxBytes = 1 << 20 },
		"missing":  nil,
	} {
		sink := c.make(fsm.QueueEntity, "sink-"+name, nil)
		source := c.make(fsm.QueueEntity, "source-"+name, forwardsDeadLetters(sink.Name))
		filler := 0
		switch name {
		case "missing":
			c.remove(sink)
		case "full":
			filler = 1
			c.change(sink, refuses)
			mustSend(t, c.nodes[0], sink, fsm.Message{Payload: make([]byte, 1<<20-3000)})
		default:
			c.change(sink, refuses)
		}
		for i, size := range []int{5000, 100, 5000, 100} {
			mustSend(t, c.nodes[i%3], source, fsm.Message{Payload: []byte(strings.Repeat(fmt.Sprint(i), size))})
			c.deadLetterOne(source)
		}
		arrive := 0
		if name == "small" || name == "full" {
			arrive = 2
			c.counted(sink, "the small ones arrive", active(uint64(filler+arrive)))
		}
		c.counted(source, "the others stay", func(n fsm.Counts) bool { return n.Transfer == uint64(4-arrive) && n.TransferDeadLetter == 0 })
		switch name {
		case "missing":
			sink = c.make(fsm.QueueEntity, sink.Name, nil)
		case "full":
			c.take(sink, 1)
		default:
			c.change(sink, accepts)
		}
		c.counted(sink, "all arrive", active(4))
		got := map[byte]int{}
		for _, m := range c.take(sink, 4) {
			got[m.Payload[0]]++
		}
		if want := map[byte]int{'0': 1, '1': 1, '2': 1, '3': 1}; !cmp.Equal(got, want) {
			t.Errorf("%s: arrived %v, want %v", name, got, want)
		}
		c.counted(source, "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	}
}
