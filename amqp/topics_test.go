package amqp

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// topicFixture is a broker with a topic, the Go client, and a sender to the topic.
type topicFixture struct {
	sdkPair
}

func newTopicFixture(t *testing.T, subscriptions ...string) topicFixture {
	t.Helper()
	h := newFakeBroker("back").topic("Orders", subscriptions...)
	_, address := gateway(t, h)
	client := sdk(t, address)
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	return topicFixture{sdkPair{T: t, ctx: within(t, 60*time.Second), broker: h, address: address, client: client, sender: sender}}
}

// at receives from a subscription.
func (s topicFixture) at(subscription string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	r, err := s.client.NewReceiverForSubscription("orders", subscription, options)
	s.must(err)
	return r
}

// rule adds a rule to a subscription.
func (s topicFixture) rule(subscription string, rule fsm.Rule) {
	s.Helper()
	place, err := s.broker.Resolve(s.ctx, fsm.DefaultNamespace, fsm.SubscriptionPath("orders", subscription))
	s.must(err)
	s.must(s.broker.AddRule(s.ctx, place, rule))
}

func sqlRule(name, text, action string) fsm.Rule {
	return fsm.Rule{Name: name, Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: text}}, Action: fsm.SQLText{Text: action}}
}

// Each subscription gets the messages that its rules match, with the changes of their actions, and reports the
// number that the message got at the topic; so do peeked and fetched messages.
func TestSDKSubscriptionsGetWhatTheirRulesSelect(t *testing.T) {
	t.Parallel()
	s := newTopicFixture(t, "all", "red")
	place, err := s.broker.Resolve(s.ctx, fsm.DefaultNamespace, "orders/subscriptions/red")
	s.must(err)
	s.must(s.broker.RemoveRule(s.ctx, place, fsm.DefaultRuleName))
	s.rule("red", sqlRule("Paint", "Color = 'red' AND sys.Label = 'car'", "SET sys.Label = 'painted'; SET color = 'dark ' + Color; REMOVE size; SET twice = 2 * size; SET sys.To = 'there'"))
	for _, color := range []string{"blue", "red"} {
		s.must(s.sender.SendMessage(s.ctx, &azservicebus.Message{
			Body: []byte(color), MessageID: ptr("id-" + color), Subject: ptr("car"),
			ApplicationProperties: map[string]any{"Color": color, "size": int32(21)},
		}, nil))
	}
	if all := s.receive(s.at("all", nil), 2); string(all[1].Body) != "red" || all[1].ApplicationProperties["Color"] != "red" || len(all[1].ApplicationProperties) != 2 {
		t.Errorf("all: %+v", all[1])
	}
	red := s.at("red", nil)
	check := func(how string, m *azservicebus.ReceivedMessage) {
		t.Helper()
		properties := fmt.Sprint(m.ApplicationProperties)
		if string(m.Body) != "red" || *m.Subject != "painted" || *m.To != "there" || m.MessageID != "id-red" || properties != "map[Color:dark red RuleName:Paint twice:<nil>]" {
			t.Errorf("%s: %q %v %v %s", how, m.Body, *m.Subject, m.MessageID, properties)
		}
		if *m.SequenceNumber != 1 || *m.EnqueuedSequenceNumber != 2 {
			t.Errorf("%s: numbers %d and %d", how, *m.SequenceNumber, *m.EnqueuedSequenceNumber)
		}
	}
	peeked, err := red.PeekMessages(s.ctx, 10, nil)
	s.must(err)
	if len(peeked) != 1 {
		t.Fatalf("%d peeked", len(peeked))
	}
	check("peeked", peeked[0])
	m := s.receive(red, 1)[0]
	check("received", m)
	s.must(red.DeferMessage(s.ctx, m, &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"RuleName": "mine"}}))
	fetched, err := red.ReceiveDeferredMessages(s.ctx, []int64{1}, nil)
	s.must(err)
	if len(fetched) != 1 || fetched[0].ApplicationProperties["RuleName"] != "mine" {
		t.Fatalf("fetched %+v", fetched)
	}
	fetched[0].ApplicationProperties["RuleName"] = "Paint"
	check("fetched", fetched[0])
}

// A subscription has dead letters of its own, and a transfer dead-letter queue.
func TestSDKDeadLettersOfASubscription(t *testing.T) {
	t.Parallel()
	s := newTopicFixture(t, "sub")
	s.send("a")
	r := s.at("sub", nil)
	s.must(r.DeadLetterMessage(s.ctx, s.receive(r, 1)[0], &azservicebus.DeadLetterOptions{Reason: ptr("why")}))
	m := s.receive(s.at("sub", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}), 1)[0]
	if *m.DeadLetterReason != "why" || m.DeadLetterSource != nil {
		t.Errorf("reason %v source %v, want why and none: it was not forwarded", *m.DeadLetterReason, m.DeadLetterSource)
	}
	peeked, err := s.at("sub", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueTransfer}).PeekMessages(s.ctx, 1, nil)
	if err != nil || len(peeked) != 0 {
		t.Errorf("transfer dead letters: %v, %v", peeked, err)
	}
}

// Messages scheduled at a topic are matched with the rules at their time, and can be cancelled before.
func TestSDKScheduledMessagesGoThroughRules(t *testing.T) {
	t.Parallel()
	s := newTopicFixture(t, "sub")
	in := time.Now().Add(time.Hour)
	numbers, err := s.sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("a")}, {Body: []byte("b"), ApplicationProperties: map[string]any{"n": int64(2)}}}, in, nil)
	s.must(err)
	if c := s.broker.counts("orders"); c.Scheduled != 2 {
		t.Errorf("counts %+v", c)
	}
	s.rule("sub", sqlRule("second", "n = 2", "SET n = 3"))
	s.must(s.sender.CancelScheduledMessages(s.ctx, numbers[:1], nil))
	s.broker.advanceClock(2 * time.Hour)
	got := s.receive(s.at("sub", nil), 2)
	if string(got[0].Body) != "b" || got[0].ApplicationProperties["n"] != int64(2) || got[1].ApplicationProperties["n"] != int64(3) {
		t.Errorf("%v and %v", got[0].ApplicationProperties, got[1].ApplicationProperties)
	}
}

// A client that mistakes one kind of entity for another gets an error at once and does not retry.
func TestSDKWrongRoles(t *testing.T) {
	t.Parallel()
	s := newTopicFixture(t, "sub")
	r, err := s.client.NewReceiverForQueue("orders", nil)
	s.must(err)
	_, fromTopic := r.ReceiveMessages(s.ctx, 1, nil)
	sender, err := s.client.NewSender("orders/Subscriptions/sub", nil)
	s.must(err)
	toSubscription := sender.SendMessage(s.ctx, &azservicebus.Message{}, nil)
	s.broker.change("orders/subscriptions/sub", func(e *fsm.EntitySettings) { e.ForwardTo = "back" })
	_, forwarding := s.at("sub", nil).ReceiveMessages(s.ctx, 1, nil)
	for text, err := range map[string]error{
		"cannot be received from. Receive from one of its subscriptions.": fromTopic,
		"cannot be sent to. Send to its topic.":                           toSubscription,
		"are forwarded to 'back'":                                         forwarding,
	} {
		if said := fmt.Sprint(err); err == nil || !strings.Contains(said, text) || !strings.Contains(said, string(wire.ConditionNotAllowed)) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// forward sends the messages that wait at a place to a destination, as the forwarder does.
func (h *fakeBroker) forward(t *testing.T, from, to string) {
	t.Helper()
	source, err := h.Resolve(t.Context(), fsm.DefaultNamespace, from)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := h.Resolve(t.Context(), fsm.DefaultNamespace, to)
	if err != nil {
		t.Fatal(err)
	}
	target := fsm.Destination{Partition: 1, Entity: destination.ID}
	batch := h.do(fsm.ForwardMessages{Address: source.Address(), To: target, Max: 100, MaxBytes: 1 << 20})
	transfer := fsm.TransferMessages{Entity: destination.ID, Source: fsm.Outbox{Partition: 1, Address: source.Address()}, Serial: batch.Serial}
	for _, d := range batch.Deliveries {
		m, err := message.Reread(d.Payload, d.Patches)
		if err != nil {
			t.Fatal(err)
		}
		patches, err := fsm.DecodePatches(d.Patches)
		if err != nil {
			t.Fatal(err)
		}
		p := fsm.Patch{Enqueued: cmp.Or(d.Topic, d.Lock.Sequence)}
		for _, old := range patches {
			if old.Enqueued != 0 {
				p.Enqueued = 0
			}
		}
		if source.Sub == fsm.DeadLetterQueue {
			p.Source = source.Name
		}
		transfer.Messages = append(transfer.Messages, fsm.Transferred{Message: m, Patches: fsm.AppendPatches(nil, append(patches, p)), Hops: d.Hops + 1, Number: d.Lock.Sequence})
	}
	if r := h.do(transfer); r.Code != fsm.OK || len(batch.Deliveries) == 0 {
		t.Fatalf("%s: batch of %d, %v: %v", from, len(batch.Deliveries), batch.Code, r.Code)
	}
	h.do(fsm.ForwardMessages{Address: source.Address(), Done: batch.Serial, Max: 1, MaxBytes: 1})
}

// firstNumber returns the number under which a message was first enqueued, which it has only if that differs from
// its own.
func firstNumber(m *azservicebus.ReceivedMessage) int64 {
	if m.EnqueuedSequenceNumber != nil {
		return *m.EnqueuedSequenceNumber
	}
	return *m.SequenceNumber
}

// A message is forwarded from a queue through a topic to its dead letters and on: the rules see the changed
// message, and the message reports where it was first sent, and which entity forwarded it last.
func TestForwardedThroughATopic(t *testing.T) {
	t.Parallel()
	s := newTopicFixture(t, "sub")
	s.broker.add("in")
	s.broker.change("in", func(e *fsm.EntitySettings) { e.ForwardTo = "orders" })
	s.rule("sub", sqlRule("mark", "n = 1 AND sys.MessageId = 'one'", "SET n = 2; SET sys.MessageId = 'two'"))
	in, err := s.client.NewSender("in", nil)
	s.must(err)
	s.must(in.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("skipped"), TimeToLive: ptr(time.Second)}, nil))
	s.broker.advanceClock(time.Minute)
	s.must(in.SendMessage(s.ctx, &azservicebus.Message{MessageID: ptr("one"), Body: []byte("x"), ApplicationProperties: map[string]any{"n": int32(1)}}, nil))
	s.broker.forward(t, "in", "orders")
	r := s.at("sub", nil)
	got := s.receive(r, 2)
	for i, want := range []struct {
		id string
		n  any
	}{{"one", int32(1)}, {"two", int64(2)}} {
		if m := got[i]; m.MessageID != want.id || m.ApplicationProperties["n"] != want.n || firstNumber(m) != 2 || m.DeadLetterSource != nil {
			t.Errorf("%q %v enqueued as %d, source %v", m.MessageID, m.ApplicationProperties, firstNumber(m), m.DeadLetterSource)
		}
	}
	s.must(r.DeadLetterMessage(s.ctx, got[1], &azservicebus.DeadLetterOptions{Reason: ptr("why")}))
	s.broker.change("orders/subscriptions/sub", func(e *fsm.EntitySettings) { e.ForwardDeadLettersTo = "back" })
	s.broker.forward(t, "orders/subscriptions/sub/$deadletterqueue", "back")
	back, err := s.client.NewReceiverForQueue("back", nil)
	s.must(err)
	m := s.receive(back, 1)[0]
	if m.MessageID != "two" || *m.EnqueuedSequenceNumber != 2 || m.DeadLetterSource == nil || *m.DeadLetterSource != "orders/subscriptions/sub" ||
		*m.DeadLetterReason != "why" || m.ApplicationProperties["RuleName"] != "mark" {
		t.Errorf("%+v", m)
	}
}
