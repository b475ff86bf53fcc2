package amqp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// sessionPair is a client with a sender on queue "orders", which requires sessions.
type sessionPair struct {
	*testing.T
	ctx    context.Context //nolint:containedctx // of the test
	broker *fakeBroker
	client *azservicebus.Client
	sender *azservicebus.Sender
}

func newSessionPair(t *testing.T) sessionPair {
	t.Helper()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "Orders")
	_, address := gateway(t, h)
	client := sdk(t, address)
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	return sessionPair{T: t, ctx: within(t, 60*time.Second), broker: h, client: client, sender: sender}
}

func (p sessionPair) send(session string, bodies ...string) {
	p.Helper()
	for _, b := range bodies {
		if err := p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: []byte(b), SessionID: &session}, nil); err != nil {
			p.Fatal(err)
		}
	}
}

func (p sessionPair) accept(session string) *azservicebus.SessionReceiver {
	p.Helper()
	r, err := p.client.AcceptSessionForQueue(p.ctx, "orders", session, nil)
	if err != nil {
		p.Fatal(err)
	}
	return r
}

func (p sessionPair) receive(r *azservicebus.SessionReceiver, n int) (bodies []string, all []*azservicebus.ReceivedMessage) {
	p.Helper()
	for len(all) < n {
		some, err := r.ReceiveMessages(p.ctx, n-len(all), nil)
		if err != nil {
			p.Fatal(err)
		}
		all = append(all, some...)
	}
	for _, m := range all {
		bodies = append(bodies, string(m.Body))
	}
	return bodies, all
}

// A session has one holder, and keeps its order, its state and its name, including the empty name.
func TestSDKHoldsSessions(t *testing.T) {
	t.Parallel()
	p := newSessionPair(t)
	p.send("red", "1", "2")
	p.send("", "3")
	p.send("red", "4")
	r := p.accept("red")
	if r.SessionID() != "red" || time.Until(r.LockedUntil()) < 20*time.Second {
		t.Errorf("session %q until %v", r.SessionID(), r.LockedUntil())
	}
	bodies, messages := p.receive(r, 3)
	if d := cmp.Diff([]string{"1", "2", "4"}, bodies); d != "" {
		t.Error(d)
	}
	if m := messages[0]; m.SessionID == nil || *m.SessionID != "red" || m.LockedUntil == nil {
		t.Errorf("message of session %v until %v", m.SessionID, m.LockedUntil)
	}
	if _, err := p.client.AcceptSessionForQueue(p.ctx, "orders", "red", &azservicebus.SessionReceiverOptions{}); err == nil {
		t.Error("two hold one session")
	}
	if err := r.RenewSessionLock(p.ctx, nil); err != nil {
		t.Error(err)
	}
	if state, err := r.GetSessionState(p.ctx, nil); state != nil || err != nil {
		t.Errorf("state %v, %v", state, err)
	}
	for _, state := range [][]byte{[]byte("half way"), {}} {
		if err := r.SetSessionState(p.ctx, state, nil); err != nil {
			t.Error(err)
		}
		got, err := r.GetSessionState(p.ctx, nil)
		if err != nil || string(got) != string(state) || (got == nil) != (len(state) == 0) {
			t.Errorf("state %v, %v, want %v", got, err, state)
		}
	}
	if err := r.CompleteMessage(p.ctx, messages[0], nil); err != nil {
		t.Error(err)
	}
	if err := r.DeferMessage(p.ctx, messages[1], nil); err != nil {
		t.Error(err)
	}
	deferred, err := r.ReceiveDeferredMessages(p.ctx, []int64{*messages[1].SequenceNumber}, nil)
	if err != nil || len(deferred) != 1 {
		t.Fatalf("%d deferred messages, %v", len(deferred), err)
	}
	if err := r.CompleteMessage(p.ctx, deferred[0], nil); err != nil {
		t.Error(err)
	}
	peeked, err := r.PeekMessages(p.ctx, 10, nil)
	if err != nil || len(peeked) != 1 || string(peeked[0].Body) != "4" {
		t.Errorf("peeked %d, %v", len(peeked), err)
	}
	if err := r.Close(p.ctx); err != nil {
		t.Error(err)
	}
	next, err := p.client.AcceptNextSessionForQueue(p.ctx, "orders", nil)
	if err != nil || next.SessionID() != "" {
		t.Fatalf("the next session: %v, %v", next, err)
	}
	again := p.accept("red")
	bodies, messages = p.receive(again, 1)
	if bodies[0] != "4" || messages[0].DeliveryCount != 1 {
		t.Errorf("after an orderly end: %q, delivery %d", bodies, messages[0].DeliveryCount)
	}
}

// A client waits for a session until one is available or the time is over, and leaves nothing behind when it
// disconnects.
func TestSDKWaitsForSessions(t *testing.T) {
	t.Parallel()
	p := newSessionPair(t)
	ctx, cancel := context.WithTimeout(p.ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := p.client.AcceptNextSessionForQueue(ctx, "orders", nil); err == nil {
		t.Error("there was no session")
	}
	for p.broker.acceptsWaiting() > 0 {
		select {
		case <-p.ctx.Done():
			t.Fatal("a wait was left behind")
		case <-time.After(time.Millisecond):
		}
	}
	got := make(chan string, 1)
	go func() {
		r, err := p.client.AcceptNextSessionForQueue(p.ctx, "orders", nil)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- r.SessionID()
	}()
	p.send("blue", "1")
	if id := <-got; id != "blue" {
		t.Errorf("got session %q", id)
	}
}

// Entities with sessions and without are not interchangeable (docs/service-bus-protocol.md#refused-links), and
// messages that were not settled in time are delivered again.
func TestSDKSessionRefusals(t *testing.T) {
	t.Parallel()
	p := newSessionPair(t)
	err := p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: []byte("x")}, nil)
	if err == nil {
		t.Error("a message without session was taken")
	}
	plain, err := p.client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.ReceiveMessages(p.ctx, 1, nil); err == nil {
		t.Error("a plain receiver was let in")
	}
	dead, err := p.client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		t.Fatal(err)
	}
	p.send("red", "1")
	r := p.accept("red")
	_, messages := p.receive(r, 1)
	if err := r.DeadLetterMessage(p.ctx, messages[0], nil); err != nil {
		t.Error(err)
	}
	if found, err := dead.ReceiveMessages(p.ctx, 1, nil); err != nil || len(found) != 1 {
		t.Errorf("%d dead letters, %v", len(found), err)
	}
	// The Go client treats a lost session lock as a lost link: it accepts the session again and considers the
	// settlement done. The broker does not: it delivers the message again.
	p.send("red", "2")
	_, messages = p.receive(r, 1)
	p.broker.advanceClock(time.Minute)
	_ = r.CompleteMessage(p.ctx, messages[0], nil)
	if n := p.broker.counts("orders").Active; n != 1 {
		t.Errorf("%d messages are there after a settlement that came too late", n)
	}
	bodies, messages := p.receive(r, 1)
	if bodies[0] != "2" || messages[0].DeliveryCount != 2 {
		t.Errorf("%q comes as delivery %d", bodies, messages[0].DeliveryCount)
	}
}

// A session binds a message to its shard also if the entity requires no sessions; the session is then not
// stored.
func TestSessionIsPartitionKey(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{0, 2} {
		at := fsm.EntityRef{Entity: fsm.Entity{Shards: make([]fsm.Shard, shards)}}
		messages := []fsm.Message{{Session: "s", HasSession: true, PartitionKey: "p"}, {PartitionKey: "p"}}
		if err := message.ApplySessions(&at, messages); err != nil {
			t.Fatal(err)
		}
		want := []fsm.Message{{PartitionKey: "p"}, {PartitionKey: "p"}}
		if shards > 0 {
			want[0].PartitionKey = "s"
		}
		if diff := cmp.Diff(want, messages); diff != "" {
			t.Errorf("%d shards: %s", shards, diff)
		}
	}
}

// A batch for several shards of a partitioned entity is refused in the words of the service, with the keys.
func TestBatchesOfSeveralKeysAreRefused(t *testing.T) {
	t.Parallel()
	partitioned := fsm.Entity{Shards: make([]fsm.Shard, 4)}
	detecting := partitioned
	detecting.Settings.RequiresDuplicateDetection = true
	const plain = "distinct SessionId or PartitionKey is not supported for an entity with partitioning enabled. The batch has the keys "
	const unique = "distinct SessionId, PartitionKey, or MessageId is not supported for an entity with partitioning and duplicate detection enabled. The batch has the keys "
	for name, c := range map[string]struct {
		entity   fsm.Entity
		messages []fsm.Message
		want     string
	}{
		"two keys":           {partitioned, []fsm.Message{{PartitionKey: "a"}, {PartitionKey: "b"}}, plain + "'a' and 'b'"},
		"a key and none":     {partitioned, []fsm.Message{{PartitionKey: "a"}, {}}, plain + "'a' and ''"},
		"two sessions":       {partitioned, []fsm.Message{{Session: "a", HasSession: true}, {Session: "b", HasSession: true}}, plain},
		"two ids":            {detecting, []fsm.Message{{ID: "a"}, {ID: "b"}}, unique + "'a' and 'b'"},
		"ids without effect": {partitioned, []fsm.Message{{ID: "a"}, {ID: "b"}}, ""},
		"one key":            {partitioned, []fsm.Message{{PartitionKey: "a"}, {PartitionKey: "a"}}, ""},
		"not partitioned":    {fsm.Entity{}, []fsm.Message{{PartitionKey: "a"}, {PartitionKey: "b"}}, ""},
	} {
		err := checkKeys(&c.entity, c.messages)
		var refused *message.Error
		if (err != nil) != (c.want != "") || err != nil && (!errors.As(err, &refused) || refused.Condition != wire.ConditionNotAllowed || !strings.Contains(refused.Text, c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
