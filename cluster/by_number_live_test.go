package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// inspected adapts a router to the Finder, as the program does.
type inspected struct{ *router.Router }

func (b inspected) Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	return b.In(namespace).Resolve(ctx, path)
}

// TestChangesByConditionsWhileLeadersDie deletes messages by a filter and sends dead letters to another queue, changed, a
// few in each request, and kills the leader of the partition half way. Nothing is lost or doubled, and what does not match stays.
func TestChangesByConditionsWhileLeadersDie(t *testing.T) {
	inBubble(t, changesByConditionsWhileLeadersDie)
}

func changesByConditionsWhileLeadersDie(t *testing.T) {
	const total, dead = 60, 20
	c := newBubbleCluster(t, 3, 2)
	for i := range c.configs {
		c.configs[i].Reread = message.Reread
	}
	c.startAll()
	c.ready()
	at := c.create("orders", func(s *fsm.EntitySettings) { s.LockDuration = 5000 })
	sink := c.create("sink", func(*fsm.EntitySettings) {})
	node := c.other(at.Partition)
	for i := range total {
		sendReadable(t, node, at, i)
	}
	receiver := node.Router().Receiver(at, false)
	for _, d := range lockMessages(receiver, dead, waitMax).deliveries {
		if code := settleMessage(t, node, at, d.Lock, fsm.DeadLetter); code != fsm.OK {
			t.Fatal(code)
		}
	}
	receiver.Close()

	// repeat sends requests until the end, and kills the leader after the second. A request that fails is repeated.
	repeat := func(what string, request func(finder *inspect.Finder, from fsm.SequenceNumber) (api.MessagesChanged, error)) {
		leader := c.leader(at.Partition)
		finder, from, requests := inspect.New(inspected{c.other(at.Partition).Router()}), fsm.SequenceNumber(0), 0
		kit.Eventually(t, what, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if requests++; requests == 3 {
				c.kill(leader)
			}
			changed, err := request(finder, from)
			if err == nil {
				from = changed.Next
			}
			return ctx.Err() == nil && err == nil && changed.End
		})
		if requests < 4 {
			t.Fatalf("%s took %d requests: the leader was not killed half way", what, requests)
		}
		c.start(leader)
		c.ready()
	}
	place := inspect.Place{Namespace: fsm.DefaultNamespace, Name: "orders"}
	red := api.Selection{Where: "color = 'red'"}
	repeat("the red messages are deleted", func(finder *inspect.Finder, from fsm.SequenceNumber) (api.MessagesChanged, error) {
		return finder.Change(t.Context(), place, inspect.Delete, &api.MessageChange{Selection: red, From: from, Max: 3})
	})
	want := make([]string, 0, total)
	for i := dead; i < total; i++ {
		if i%3 != 0 {
			want = append(want, fmt.Sprint("m", i))
		}
	}
	if diff := cmp.Diff(want, c.bodies(at, fsm.MainQueue)); diff != "" {
		t.Error("what is left after the deletion:", diff)
	}

	for len(c.bodies(at, fsm.DeadLetterQueue)) > 0 { // a lock without a known outcome ends, and the message is moved then
		repeat("the dead letters are sent", func(finder *inspect.Finder, from fsm.SequenceNumber) (api.MessagesChanged, error) {
			return finder.Move(t.Context(), place, &api.RedriveRequest{
				MessageChange: api.MessageChange{All: true, From: from, Max: 3}, To: "sink",
				Properties: map[string]jsonmessage.Value{"attempt": {Go: int64(2)}},
			})
		})
		if n := len(c.bodies(at, fsm.DeadLetterQueue)); n > 0 {
			t.Logf("%d dead letters were locked", n)
			sleep(t.Context(), 6*time.Second)
			_, _ = inspect.New(inspected{c.any().Router()}).Move(t.Context(), place, &api.RedriveRequest{MessageChange: api.MessageChange{All: true}, To: "sink"})
		}
	}
	want = want[:0]
	for i := range dead {
		want = append(want, fmt.Sprint("m", i))
	}
	slices.Sort(want)
	var got []string
	kit.Eventually(t, "the messages arrive", func() bool { // in another partition they are forwarded
		got = c.bodies(sink, fsm.MainQueue)
		return len(got) >= dead
	})
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("what the other queue has:", diff)
	}
}

// sendReadable sends a message as a client sends it.
func sendReadable(t *testing.T, node *Node, at fsm.EntityRef, i int) {
	t.Helper()
	body, id, color := fmt.Sprint("m", i), fmt.Sprint("id", i), "blue"
	if i%3 == 0 {
		color = "red"
	}
	m := jsonmessage.Message{Body: &body, MessageID: &jsonmessage.Value{Go: id}, Properties: map[string]jsonmessage.Value{"color": {Go: color}}}
	encoded := kit.Must(m.Encode())(t)
	stored := kit.Must(message.Parse(encoded))(t)
	done := make(chan fsm.Code, 1)
	node.Router().Send(at, []fsm.Message{stored}, func(code fsm.Code) { done <- code })
	if code := <-done; code != fsm.OK {
		t.Fatal(code)
	}
}

// bodies returns the bodies of all messages of a sub-queue, in order.
func (c *testCluster) bodies(at fsm.EntityRef, sub fsm.SubQueue) (all []string) {
	c.t.Helper()
	name := map[fsm.SubQueue]string{fsm.DeadLetterQueue: "deadLetter"}[sub]
	kit.Eventually(c.t, "the messages can be read", func() bool {
		all = []string{}
		page, err := inspect.New(inspected{c.any().Router()}).Peek(c.t.Context(), inspect.Place{Namespace: fsm.DefaultNamespace, Name: at.Name},
			&api.Selection{SubQueue: name}, 0, 1000, 100)
		for i := range page.Messages {
			all = append(all, *page.Messages[i].Body)
		}
		return err == nil && page.End
	})
	return all
}
