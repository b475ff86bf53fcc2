package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

func transacted(node *Node, tx fsm.Transaction) fsm.Code {
	done := make(chan fsm.Code, 1)
	node.Router().Transact(tx, func(code fsm.Code) { done <- code })
	return <-done
}

// TestTransactionThroughAnyMember runs a transaction through any member that moves a message from one queue to
// two others, one of them in another partition, and completes their creation if that was interrupted.
func TestTransactionThroughAnyMember(t *testing.T) { inBubble(t, transactionThroughAnyMember) }

func transactionThroughAnyMember(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	in := c.make(fsm.QueueEntity, "in", nil)
	near := c.half(fsm.CreateEntity{Name: "near", Partition: in.Partition})
	far := c.half(fsm.CreateEntity{Name: "far", Partition: 3 - in.Partition})
	for i, node := range c.nodes {
		text := fmt.Sprint("m", i)
		sendMessage(t, node, in, text)
		receiver := node.Router().Receiver(in, false)
		got := lockMessages(receiver, 1, time.Minute)
		receiver.Close()
		tx := fsm.Transaction{
			Settles: []fsm.SettleAt{kit.Complete(in, got.deliveries[0].Lock)},
			Sends:   []fsm.SendTo{kit.SendTo(near, text), kit.SendTo(far, text)},
		}
		if code := transacted(c.nodes[(i+1)%3], tx); code != fsm.OK {
			t.Fatalf("transaction %d: %v", i, code)
		}
		// The locks are gone: the same transaction is refused, and adds nothing.
		if code := transacted(node, tx); code != fsm.MessageLockLost {
			t.Errorf("the same again: %v", code)
		}
	}
	c.counted(near, "what is near has come", active(3))
	c.counted(far, "what is far has come", active(3))
	c.counted(in, "nothing is left", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	for _, m := range c.take(far, 10) {
		for _, patch := range m.Patches {
			if patch.Enqueued != 0 || patch.Source != "" {
				t.Errorf("%s says that it was in another queue: %+v", m.Payload, patch)
			}
		}
	}
	tx := fsm.Transaction{Sends: []fsm.SendTo{kit.SendTo(near, "x"), kit.SendTo(fsm.EntityRef{Entity: fsm.Entity{ID: 999, Partition: in.Partition}}, "x")}}
	if code := transacted(c.nodes[0], tx); code != fsm.EntityNotFound {
		t.Errorf("with one that is not there: %v", code)
	}
	c.counted(near, "nothing came of that", active(3))
}

// TestTransactionSchedulesAcrossPartitions: a message that a transaction schedules for a queue of another
// partition is scheduled there within a second, where it can be peeked at, and becomes active when its time has come.
func TestTransactionSchedulesAcrossPartitions(t *testing.T) {
	inBubble(t, transactionSchedulesAcrossPartitions)
}

func transactionSchedulesAcrossPartitions(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	in := c.make(fsm.QueueEntity, "in", nil)
	far := c.half(fsm.CreateEntity{Name: "far", Partition: 3 - in.Partition})
	node := c.nodes[0]
	sendMessage(t, node, in, "now")
	receiver := node.Router().Receiver(in, false)
	got := lockMessages(receiver, 1, time.Minute)
	receiver.Close()
	later := kit.SendTo(far, "later")
	due := time.Now().Add(waitMax / 2)
	later.Messages[0].EnqueueAt = fsm.Instant(due.UnixMilli())
	tx := fsm.Transaction{Settles: []fsm.SettleAt{kit.Complete(in, got.deliveries[0].Lock)}, Sends: []fsm.SendTo{later}}
	kit.Eventually(t, "the transaction is performed", func() bool { return transacted(node, tx) == fsm.OK }) // its partition learns the level
	committed := time.Now()
	c.counted(far, "it is scheduled", func(n fsm.Counts) bool { return n.Scheduled == 1 && n.Active == 0 })
	if took := time.Since(committed); took > time.Second {
		t.Errorf("it was scheduled at its destination after %v, want within a second", took)
	}
	if peeked, err := node.Router().Peek(t.Context(), far, 1, 10, 1000); err != nil || len(peeked) != 1 || peeked[0].State != fsm.Scheduled {
		t.Errorf("peeked %+v (%v), want one scheduled message", peeked, err)
	}
	c.counted(far, "it has come", active(1))
	if early := time.Until(due); early > 0 {
		t.Errorf("it came %v early", early)
	}
}

// TestTransferDeadLettersOfATopic checks that messages that a transaction sends through a topic and that their
// destination refuses are received from the topic's transfer dead-letter queue, and from no other.
func TestTransferDeadLettersOfATopic(t *testing.T) { inBubble(t, transferDeadLettersOfATopic) }

func transferDeadLettersOfATopic(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	topic := c.make(fsm.TopicEntity, "topic", nil)
	far := c.half(fsm.CreateEntity{Name: "far", Partition: 3 - topic.Partition})
	small := testSettings
	small.MaxMessageBytes = 1
	tooLarge := strings.Repeat("too large ", 30) // more than what the broker may add to a message
	kit.Must(c.any().Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "far", small))(t)
	tx := fsm.Transaction{Sends: []fsm.SendTo{kit.SendTo(topic, "here"), kit.SendTo(far, tooLarge)}}
	if code := transacted(c.nodes[0], tx); code != fsm.OK {
		t.Fatal(code)
	}
	c.counted(topic, "what was refused lies at the topic", func(n fsm.Counts) bool { return n.TransferDeadLetter == 1 })
	at := kit.Must(c.nodes[1].Router().In(fsm.DefaultNamespace).Resolve(t.Context(), "topic/$Transfer/$DeadLetterQueue"))(t)
	if seen, err := c.nodes[1].Router().Peek(t.Context(), at, 0, 10, 1000); err != nil || len(seen) != 1 {
		t.Errorf("%d are peeked at: %v", len(seen), err)
	}
	if got := c.take(at, 1); len(got) != 1 || got[0].Payload != tooLarge {
		t.Errorf("received %+v", got)
	}
}

// TestTransactionsWhileLeadersDie kills the leader repeatedly while transactions are committed: each is
// complete or absent, and of two that settle the same message one is absent.
func TestTransactionsWhileLeadersDie(t *testing.T) {
	kit.Long(t)
	inBubble(t, transactionsWhileLeadersDie)
}

func transactionsWhileLeadersDie(t *testing.T) {
	const rounds, messages = 8, 25
	c := newForwardingCluster(t, 2)
	c.startAll()
	in := c.make(fsm.QueueEntity, "in", nil)
	var outs []fsm.EntityRef // one of them in the partition of in
	for _, name := range []string{"a", "b", "c"} {
		outs = append(outs, c.make(fsm.QueueEntity, name, nil))
	}
	want := map[string]int{}
	for round := range rounds {
		dead := c.leader(in.Partition)
		node := c.nodes[(dead+1)%3]
		texts := make([]string, messages)
		for i := range texts {
			texts[i] = fmt.Sprintf("%d.%d", round, i)
		}
		mustSend(t, node, in, kit.SendTo(in, texts...).Messages...)
		receiver := node.Router().Receiver(in, false)
		var locks []fsm.LockID
		for len(locks) < messages {
			for _, d := range lockMessages(receiver, messages, time.Minute).deliveries {
				locks = append(locks, d.Lock)
			}
		}
		receiver.Close()
		type ended struct {
			name string
			code fsm.Code
		}
		answers, killed := make(chan ended, 2*messages), make(chan struct{})
		for i, lock := range locks {
			for _, rival := range []string{"x", "y"} {
				name := texts[i] + rival
				tx := fsm.Transaction{Settles: []fsm.SettleAt{kit.Complete(in, lock)}}
				for _, out := range outs {
					tx.Sends = append(tx.Sends, kit.SendTo(out, name))
				}
				node.Router().Transact(tx, func(code fsm.Code) { answers <- ended{name, code} })
			}
			if i == messages/3 {
				go func() {
					defer close(killed)
					c.kill(dead)
				}()
			}
		}
		<-killed
		for range 2 * messages {
			a := <-answers
			if a.code == fsm.OK {
				want[a.name] = 1
			} else if a.code != fsm.MessageLockLost {
				t.Errorf("transaction %s: %v", a.name, a.code)
			}
		}
		c.start(dead)
		c.ready()
	}
	if len(want) != rounds*messages {
		t.Errorf("%d transactions were done, want %d", len(want), rounds*messages)
	}
	for _, out := range outs {
		c.counted(out, "all have come", active(rounds*messages))
		got := map[string]int{}
		for _, m := range c.take(out, 2*rounds*messages) {
			got[m.Payload]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", out.Name, diff)
		}
	}
	c.counted(in, "nothing is left", func(n fsm.Counts) bool { return n == fsm.Counts{} })
}

// TestTransactionSchedulesUnderRealNumbers: messages that a transaction schedules have the numbers that were reserved for
// them, in whatever partition their queue is, and can be cancelled by them.
func TestTransactionSchedulesUnderRealNumbers(t *testing.T) {
	inBubble(t, transactionSchedulesUnderRealNumbers)
}

func transactionSchedulesUnderRealNumbers(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	node := c.nodes[0]
	in := c.make(fsm.QueueEntity, "in", nil)
	far := c.half(fsm.CreateEntity{Name: "far", Partition: 3 - in.Partition})
	divided := c.make(fsm.QueueEntity, "divided", partitioned)
	sendMessage(t, node, in, "now")
	receiver := node.Router().Receiver(in, false)
	got := lockMessages(receiver, 1, time.Minute)
	receiver.Close()
	tx := fsm.Transaction{Settles: []fsm.SettleAt{kit.Complete(in, got.deliveries[0].Lock)}}
	numbers := make(map[string][]fsm.SequenceNumber)
	for range 3 {
		for _, at := range []fsm.EntityRef{in, far, divided} {
			later := kit.SendTo(at, "later")
			later.Messages[0].EnqueueAt = fsm.Instant(time.Now().Add(time.Hour).UnixMilli())
			reserved := make(chan []fsm.SequenceNumber, 1)
			node.Router().Reserve(at, later.Messages, func(code fsm.Code, numbers []fsm.SequenceNumber) {
				if code != fsm.OK {
					t.Errorf("reserve at %s: %v", at.Name, code)
				}
				reserved <- numbers
			})
			later.Messages[0].Reserved = (<-reserved)[0]
			numbers[at.Name] = append(numbers[at.Name], later.Messages[0].Reserved)
			tx.Sends = append(tx.Sends, later)
		}
	}
	if code := transacted(c.nodes[1], tx); code != fsm.OK {
		t.Fatal(code)
	}
	for _, at := range []fsm.EntityRef{in, far, divided} {
		c.counted(at, "all are scheduled", func(n fsm.Counts) bool { return n.Scheduled == 3 })
		cancelled := make(chan fsm.Code, 1)
		c.nodes[2].Router().CancelScheduled(at, numbers[at.Name], func(code fsm.Code) { cancelled <- code })
		if code := <-cancelled; code != fsm.OK {
			t.Errorf("cancel %v of %s: %v", numbers[at.Name], at.Name, code)
		}
		c.counted(at, "all are cancelled", func(n fsm.Counts) bool { return n == fsm.Counts{LastUse: n.LastUse} })
	}
}
