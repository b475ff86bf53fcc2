package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

func createQueue(t *testing.T, node *Node, name string) fsm.EntityRef {
	t.Helper()
	entity, err := node.Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, name, testSettings, nil, nil)
	if err != nil {
		t.Fatalf("create queue: %v", err)
	}
	return fsm.EntityRef{Entity: entity}
}

func resolve(t *testing.T, node *Node, path string) fsm.EntityRef {
	t.Helper()
	place, err := node.Router().In(fsm.DefaultNamespace).Resolve(t.Context(), path)
	if err != nil {
		t.Fatalf("resolve %q: %v", path, err)
	}
	return place
}

func sendMessage(t *testing.T, node *Node, at fsm.EntityRef, payload string) {
	t.Helper()
	done := make(chan fsm.Code, 1)
	node.Router().Send(at, []fsm.Message{{ID: payload, Payload: []byte(payload)}}, func(c fsm.Code) { done <- c })
	if code := <-done; code != fsm.OK {
		t.Fatalf("send %q: %v", payload, code)
	}
}

type lockedMessages struct {
	code       fsm.Code
	deliveries []fsm.Delivery
}

func lockMessages(r *router.Receiver, most int, wait time.Duration) lockedMessages {
	done := make(chan lockedMessages, 1)
	r.Lock(most, 1<<20, wait, func(c fsm.Code, d []fsm.Delivery) { done <- lockedMessages{c, d} })
	return <-done
}

func settleMessage(t *testing.T, node *Node, at fsm.EntityRef, id fsm.LockID, verb fsm.Verb) fsm.Code {
	t.Helper()
	done := make(chan []fsm.Code, 1)
	node.Router().Settle(at, []fsm.Settlement{{Lock: id, Verb: verb}}, func(c []fsm.Code) { done <- c })
	return (<-done)[0]
}

func countMessages(t *testing.T, node *Node, at fsm.EntityRef) fsm.Counts {
	t.Helper()
	counts := kit.Must(node.Router().Counts(t.Context(), []fsm.Entity{at.Entity}))(t)
	counts[0].LastUse = 0 // tests compare numbers of messages
	return counts[0]
}

// findEntity asks the catalog's leader.
func findEntity(ctx context.Context, node *Node, q entities.EntityQuery) (fsm.Entity, error) {
	return entities.FindEntity.Ask(ctx, node.router.Leader(fsm.CatalogPartition), q)
}

func (c *testCluster) create(name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	c.t.Helper()
	settings := testSettings
	change(&settings)
	entity, err := c.nodes[0].Router().In(fsm.DefaultNamespace).CreateEntity(c.t.Context(), fsm.QueueEntity, name, settings, nil, nil)
	if err != nil {
		c.t.Fatalf("create queue: %v", err)
	}
	return fsm.EntityRef{Entity: entity}
}

func sendCode(node *Node, at fsm.EntityRef, messages ...fsm.Message) fsm.Code {
	done := make(chan fsm.Code, 1)
	node.Router().Send(at, messages, func(code fsm.Code) { done <- code })
	return <-done
}

func scheduleMessages(t *testing.T, node *Node, at fsm.EntityRef, messages ...fsm.Message) []fsm.SequenceNumber {
	t.Helper()
	type answer struct {
		code    fsm.Code
		numbers []fsm.SequenceNumber
	}
	done := make(chan answer, 1)
	node.Router().Schedule(at, messages, func(code fsm.Code, numbers []fsm.SequenceNumber) { done <- answer{code, numbers} })
	got := <-done
	if got.code != fsm.OK {
		t.Fatalf("schedule: %v", got.code)
	}
	return got.numbers
}

func cancelScheduled(node *Node, at fsm.EntityRef, numbers ...fsm.SequenceNumber) fsm.Code {
	done := make(chan fsm.Code, 1)
	node.Router().CancelScheduled(at, numbers, func(code fsm.Code) { done <- code })
	return <-done
}

// receive removes all ready messages, and returns their payloads in order.
func receive(t *testing.T, node *Node, at fsm.EntityRef) []string {
	t.Helper()
	receiver := node.Router().Receiver(at, true)
	defer receiver.Close()
	payloads := []string{}
	kit.Eventually(t, "everything that is ready has been received", func() bool {
		for {
			got := lockMessages(receiver, 100, 0)
			if got.code != fsm.OK {
				t.Fatalf("receive: %v", got.code)
			}
			if len(got.deliveries) == 0 { // nothing is ready, or there was no leader at that moment
				return ready(t, node, at) == 0
			}
			for _, delivery := range got.deliveries {
				payloads = append(payloads, fmt.Sprintf("%s#%d", delivery.Payload, delivery.Lock.Sequence))
			}
		}
	})
	return payloads
}

// ready returns how many messages of an entity are not locked.
func ready(t *testing.T, node *Node, at fsm.EntityRef) uint64 {
	t.Helper()
	switch counts := countMessages(t, node, at); at.Sub {
	case fsm.MainQueue:
		return counts.Active - counts.Locked
	case fsm.DeadLetterQueue:
		return counts.DeadLetter
	case fsm.TransferDeadLetterQueue:
		return counts.TransferDeadLetter
	case fsm.TransferQueue:
		return counts.Transfer
	}
	return 0
}

// gone reports whether no member knows an entity any more, by name, by id, or in its partition.
func (c *testCluster) gone(at fsm.EntityRef) bool {
	for _, node := range c.nodes {
		if node == nil {
			continue
		}
		if _, err := node.Router().In(fsm.DefaultNamespace).Resolve(c.t.Context(), at.Name); !errors.Is(err, fsm.EntityNotFound) {
			return false
		}
		_, err := findEntity(c.t.Context(), node, entities.EntityQuery{ID: at.ID})
		if !errors.Is(err, fsm.EntityNotFound) {
			return false
		}
		clean := false
		node.replicas.Local(at.Partition).View(func(m partition.Machine) {
			_, there := raftgroup.Queues(m).Settings(at.ID)
			clean = !there && len(raftgroup.Queues(m).Tombstones()) == 0
		})
		if !clean {
			return false
		}
	}
	return true
}

func await(t *testing.T, answer chan lockedMessages) lockedMessages {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	select {
	case got := <-answer:
		return got
	case <-ctx.Done():
		t.Fatal("no answer in", waitMax)
		return lockedMessages{}
	}
}

// make creates an entity of any kind through the first living member.
func (c *testCluster) make(kind fsm.EntityKind, name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	c.t.Helper()
	settings := testSettings
	if change != nil {
		change(&settings)
	}
	entity, err := c.any().Router().In(fsm.DefaultNamespace).CreateEntity(c.t.Context(), kind, name, settings, nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return fsm.EntityRef{Entity: entity}
}

// any returns a living member.
func (c *testCluster) any() *Node {
	for _, node := range c.nodes {
		if node != nil {
			return node
		}
	}
	c.t.Fatal("no member is alive")
	return nil
}

// half creates the state that an interrupted creation leaves: the catalog has the entity, its partition does
// not.
func (c *testCluster) half(command fsm.CreateEntity) fsm.EntityRef {
	c.t.Helper()
	command.Settings = testSettings
	if command.Kind != fsm.SubscriptionEntity {
		command.Namespace = fsm.DefaultNamespace
	}
	result, err := c.any().router.Command(c.t.Context(), fsm.CatalogPartition, command)
	if err != nil {
		c.t.Fatal(err)
	}
	entity, err := findEntity(c.t.Context(), c.any(), entities.EntityQuery{ID: result.Entity})
	if err != nil {
		c.t.Fatal(err)
	}
	return fsm.EntityRef{Entity: entity}
}

// coloured returns a message with the property color, which rules can match.
func coloured(color, payload string) fsm.Message {
	return fsm.Message{
		ID: payload, Payload: []byte(payload),
		Properties: fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Name: "color"}, Value: filter.Text(color)}}),
	}
}

func sqlRule(name, text string) fsm.Rule {
	return fsm.Rule{Name: name, Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: text}}}
}

func mustSend(t *testing.T, node *Node, at fsm.EntityRef, messages ...fsm.Message) {
	t.Helper()
	if code := sendCode(node, at, messages...); code != fsm.OK {
		t.Fatalf("send to %s: %v", at.Name, code)
	}
}

func ruleNames(t *testing.T, node *Node, path string) []string {
	t.Helper()
	rules := kit.Must(node.Router().In(fsm.DefaultNamespace).Rules(t.Context(), path, 0, 100))(t)
	names := []string{}
	for _, rule := range rules {
		names = append(names, rule.Name)
	}
	return names
}

// holds reports whether a partition has exactly these entities, at every living member.
func (c *testCluster) holds(id fsm.PartitionID, want ...fsm.EntityID) bool {
	for _, node := range c.nodes {
		if node == nil {
			continue
		}
		there := 0
		all := true
		node.replicas.Local(id).View(func(m partition.Machine) {
			queues := raftgroup.Queues(m)
			there = queues.Entities() + len(queues.Tombstones())
			for _, entity := range want {
				_, found := queues.Settings(entity)
				all = all && found
			}
		})
		if !all || there != len(want) {
			return false
		}
	}
	return true
}

func withSessions(s *fsm.EntitySettings) { s.RequiresSession = true }

type acceptedSession struct {
	code    fsm.Code
	session *router.SessionReceiver
}

// accepting starts an AcceptSession.
func accepting(node *Node, at fsm.EntityRef, name *string, wait time.Duration) (chan acceptedSession, func()) {
	got := make(chan acceptedSession, 1)
	var wants fsm.AcceptSession
	if name != nil {
		wants.Named, wants.ID = true, *name
	}
	cancel := node.Router().AcceptSession(at, wants, false, wait, func(code fsm.Code, s *router.SessionReceiver) {
		got <- acceptedSession{code, s}
	})
	return got, cancel
}

func acceptNamed(t *testing.T, node *Node, at fsm.EntityRef, name string) *router.SessionReceiver {
	t.Helper()
	got, _ := accepting(node, at, &name, time.Minute)
	a := <-got
	if a.code != fsm.OK {
		t.Fatalf("accept %q: %v", name, a.code)
	}
	return a.session
}

func inSession(session string, payloads ...string) []fsm.Message {
	var list []fsm.Message
	for _, p := range payloads {
		list = append(list, fsm.Message{Payload: []byte(p), Session: session, HasSession: true})
	}
	return list
}

func sendAll(t *testing.T, node *Node, at fsm.EntityRef, messages ...fsm.Message) {
	t.Helper()
	if code := sendCode(node, at, messages...); code != fsm.OK {
		t.Fatalf("send: %v", code)
	}
}

func payloads(ds []fsm.Delivery) []string {
	list := []string{}
	for i := range ds {
		list = append(list, string(ds[i].Payload))
	}
	return list
}
