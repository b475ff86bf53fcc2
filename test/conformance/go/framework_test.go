package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/peeklock/peeklock/test/harness"
)

// frameworkChecks do what frameworks on .NET do when they start and stop, according to their sources
// (docs/compatibility.md#frameworks-on-net), with the official Go clients.
func frameworkChecks() []check {
	return []check{
		{name: "masstransit topology", run: massTransitTopology},
		{name: "masstransit temporary endpoint", run: massTransitTemporary},
		{name: "nservicebus installer", run: nServiceBusInstaller},
		{name: "nservicebus subscriptions", run: nServiceBusSubscriptions},
		{name: "nservicebus hierarchy", run: nServiceBusHierarchy},
		{name: "nservicebus batches", run: nServiceBusBatches},
		{name: "rebus topology", run: rebusTopology},
	}
}

// namespaceURL is how the management client of .NET writes a destination of an entity.
func (s suite) namespaceURL(member int, name string) string {
	return "sb://" + s.Members[member-1].Admin + "/" + name
}

// publish sends one message with these properties to a topic.
func (s suite) publish(topic, id string, properties map[string]any) {
	s.Helper()
	sender, err := s.client(2).NewSender(topic, nil)
	s.must("sender", err)
	s.must("publish "+id, sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &id, ApplicationProperties: properties}, nil))
}

// massTransitTopology: MassTransit looks for each entity, creates what is missing with settings of its own, takes one that
// appeared meanwhile, and replaces the filter of a rule whose name is a GUID. A bus that stops removes its subscriptions.
func massTransitTopology(s suite) {
	const life = "P366D"
	queue, topic := s.queue+"/order-state", s.queue+"/MassTransit/Fault--Ns/Msg--"
	missing, err := s.admin(1).GetQueue(s.ctx, queue, nil)
	s.must("look for the queue", err)
	props := admin.QueueProperties{
		LockDuration: ptr("PT5M"), DefaultMessageTimeToLive: ptr(life), AutoDeleteOnIdle: ptr("P427D"), EnableBatchedOperations: ptr(true),
		DeadLetteringOnMessageExpiration: ptr(true), MaxDeliveryCount: ptr(int32(5)),
	}
	created, err := s.admin(1).CreateQueue(s.ctx, queue, &admin.CreateQueueOptions{Properties: &props})
	s.must("create the queue", err)
	want := queueDefaults()
	want.LockDuration, want.DefaultMessageTimeToLive, want.AutoDeleteOnIdle = props.LockDuration, props.DefaultMessageTimeToLive, props.AutoDeleteOnIdle
	want.DeadLetteringOnMessageExpiration, want.MaxDeliveryCount = props.DeadLetteringOnMessageExpiration, props.MaxDeliveryCount
	s.same("queue", want, created.QueueProperties)
	_, err = s.admin(2).CreateQueue(s.ctx, queue, &admin.CreateQueueOptions{Properties: &props})
	s.refusedAs("create the queue again", err, http.StatusConflict, "SubCode=40900")

	noTopic, err := s.admin(2).GetTopic(s.ctx, topic, nil)
	s.must("look for the topic", err)
	topicProps := admin.TopicProperties{AutoDeleteOnIdle: ptr("P427D"), DefaultMessageTimeToLive: ptr(life), EnableBatchedOperations: ptr(true)}
	_, err = s.admin(2).CreateTopic(s.ctx, topic, &admin.CreateTopicOptions{Properties: &topicProps})
	s.must("create the topic", err)
	_, err = s.admin(3).CreateTopic(s.ctx, topic, &admin.CreateTopicOptions{Properties: &topicProps})
	s.refusedAs("create the topic again", err, http.StatusConflict, "SubCode=40900")

	name, to := strings.Repeat("s", 43)+"-b3c4d5", s.namespaceURL(1, queue) // 50 characters: what is longer ends with a hash
	noSubscription, err := s.admin(3).GetSubscription(s.ctx, topic, name, nil)
	s.must("look for the subscription", err)
	if missing != nil || noTopic != nil || noSubscription != nil {
		s.Error("found what does not exist")
	}
	const rule = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
	subscription := admin.SubscriptionProperties{
		LockDuration: ptr("PT5M"), DefaultMessageTimeToLive: ptr(life), AutoDeleteOnIdle: ptr("P427D"), EnableBatchedOperations: ptr(true),
		DeadLetteringOnMessageExpiration: ptr(true), MaxDeliveryCount: ptr(int32(5)), ForwardTo: &to,
		DefaultRule: &admin.RuleProperties{Name: rule, Filter: &admin.SQLFilter{Expression: "Region = 'north'"}},
	}
	_, err = s.admin(1).CreateSubscription(s.ctx, topic, name, &admin.CreateSubscriptionOptions{Properties: &subscription})
	s.must("create the subscription", err)
	got, err := s.admin(1).GetSubscription(s.ctx, topic, name, nil)
	s.must("read the subscription", err)
	s.same("ForwardTo without the namespace", queue, strings.Trim(strings.Replace(*got.ForwardTo, s.namespaceURL(1, ""), "", 1), "/"))
	_, err = s.admin(2).UpdateSubscription(s.ctx, topic, name, got.SubscriptionProperties, nil) // as it was read
	s.must("update the subscription", err)
	page, err := s.admin(2).NewListRulesPager(topic, name, nil).NextPage(s.ctx)
	s.must("list the rules", err)
	s.same("rules", []admin.RuleProperties{*subscription.DefaultRule}, page.Rules)
	s.publish(topic, "north", map[string]any{"Region": "north"})
	s.publish(topic, "not south", map[string]any{"Region": "south"})
	_, err = s.admin(3).UpdateRule(s.ctx, topic, name, admin.RuleProperties{Name: rule, Filter: &admin.SQLFilter{Expression: "Region = 'south'"}})
	s.must("replace the filter", err)
	s.publish(topic, "south", map[string]any{"Region": "south"})
	s.publish(topic, "not north", map[string]any{"Region": "north"})
	s.queue = queue
	s.gets(3, "north", "south")

	_, err = s.admin(1).DeleteSubscription(s.ctx, topic, name, nil)
	s.must("delete the subscription", err)
	_, err = s.admin(2).DeleteSubscription(s.ctx, topic, name, nil)
	s.refusedAs("delete it again", err, http.StatusNotFound, "could not be found")
}

// massTransitTemporary: the queue of a bus, for the answers to its requests, deletes itself five minutes after its last use.
// Subscriptions that lead to it get the same setting, which a subscription that forwards reads back as never.
func massTransitTemporary(s suite) {
	const idle = "PT5M"
	queue := s.queue + "_bus_r8ayyybdscxbsh9wbdx3yqe3h5"
	_, err := s.admin(1).CreateQueue(s.ctx, queue, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{AutoDeleteOnIdle: ptr(idle), EnablePartitioning: ptr(true)}})
	s.must("create the queue", err)
	topic := s.topic(nil).queue
	_, err = s.admin(2).CreateSubscription(s.ctx, topic, "bus", &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{
		AutoDeleteOnIdle: ptr(idle), ForwardTo: ptr(s.namespaceURL(2, queue)),
	}})
	s.must("create the subscription", err)
	got, err := s.admin(3).GetQueue(s.ctx, queue, nil)
	s.must("read the queue", err)
	sub, err := s.admin(3).GetSubscription(s.ctx, topic, "bus", nil)
	s.must("read the subscription", err)
	s.same("AutoDeleteOnIdle", []string{idle, "P10675199DT2H48M5.4775807S"}, []string{*got.AutoDeleteOnIdle, *sub.AutoDeleteOnIdle})
	s.publish(topic, "event", nil)
	s.queue = queue
	s.receiveOne(s.receiver(1))
}

// nServiceBusInstaller: NServiceBus asks for a queue that nobody has, which must be answered as not found with the right to
// manage; it then creates its queues, and takes existing ones for success.
func nServiceBusInstaller(s suite) {
	s.awaitFormatLevel()
	found, err := s.admin(1).GetQueue(s.ctx, "$nservicebus-verification-queue", nil)
	s.must("look for the queue that shows the right to manage", err)
	if found != nil {
		s.Errorf("there is such a queue: %+v", found)
	}
	for i, partitioned := range []bool{false, true} {
		name := fmt.Sprintf("%s.%d", s.queue, i)
		props := admin.QueueProperties{
			EnableBatchedOperations: ptr(true), LockDuration: ptr("PT5M"), MaxDeliveryCount: ptr(int32(1<<31 - 1)), MaxSizeInMegabytes: ptr(int32(5 * 1024)),
			EnablePartitioning: &partitioned,
		}
		created, err := s.admin(1).CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: &props})
		s.must("create "+name, err)
		want := queueDefaults()
		want.LockDuration, want.MaxDeliveryCount, want.MaxSizeInMegabytes, want.EnablePartitioning = props.LockDuration, props.MaxDeliveryCount, props.MaxSizeInMegabytes, &partitioned
		if partitioned {
			want.MaxSizeInMegabytes = ptr(int32(16 * 5 * 1024))
		}
		s.same(name, want, created.QueueProperties)
		_, err = s.admin(2).CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: &props})
		s.refusedAs("create it again", err, http.StatusConflict, "SubCode=40900")
	}
}

// nServiceBusSubscription are the settings of the subscription of an endpoint.
func nServiceBusSubscription(to string) admin.SubscriptionProperties {
	return admin.SubscriptionProperties{
		LockDuration: ptr("PT5M"), ForwardTo: &to, EnableDeadLetteringOnFilterEvaluationExceptions: ptr(false),
		MaxDeliveryCount: ptr(int32(1<<31 - 1)), EnableBatchedOperations: ptr(true), UserMetadata: &to,
	}
}

// nServiceBusSubscriptions: an endpoint has one subscription, which leads to its queue. Its rule $default matches nothing. The
// endpoint adds one rule per event over AMQP, by the names of the types that a message contains, as SQL or as a
// property whose name is the name of the type.
func nServiceBusSubscriptions(s suite) {
	s.awaitFormatLevel()
	const header = "NServiceBus.EnclosedMessageTypes"
	topic := s.topic(nil)
	props := nServiceBusSubscription(s.queue)
	props.DefaultRule = &admin.RuleProperties{Name: "$default", Filter: &admin.FalseFilter{}}
	_, err := s.admin(1).CreateSubscription(s.ctx, topic.queue, "endpoint", &admin.CreateSubscriptionOptions{Properties: &props})
	s.must("create the subscription", err)
	_, err = s.admin(2).CreateSubscription(s.ctx, topic.queue, "endpoint", &admin.CreateSubscriptionOptions{Properties: &props})
	s.refusedAs("create it again", err, http.StatusConflict, "SubCode=40900")
	got, err := s.admin(3).GetSubscription(s.ctx, topic.queue, "endpoint", nil)
	s.must("read the subscription", err)
	s.same("UserMetadata and MaxDeliveryCount", []any{s.queue, int32(1<<31 - 1)}, []any{*got.UserMetadata, *got.MaxDeliveryCount})

	rules := topic
	rules.queue = harness.SubscriptionPath(topic.queue, "endpoint")
	add := func(name string, filter map[string]any, want int32) {
		s.Helper()
		filter["rule-name"] = name
		if status, answer := rules.ask(2, "com.microsoft:add-rule", map[string]any{"rule-name": name, "rule-description": filter}); status != want {
			s.Errorf("add %s: status %d, want %d (%v)", name, status, want, answer)
		}
	}
	sql := func(event string) map[string]any {
		return map[string]any{"sql-filter": map[string]any{"expression": "[" + header + "] LIKE '%" + event + "%'"}}
	}
	add("Sales.OrderPlaced", sql("Sales.OrderPlaced"), http.StatusOK)
	add("Sales.OrderPlaced", sql("Sales.OrderPlaced"), http.StatusConflict)
	add("Sales.Events+Cancelled", map[string]any{
		"correlation-filter": map[string]any{"properties": map[string]any{"Sales.Events+Cancelled": true}},
	}, http.StatusOK)
	s.publish(topic.queue, "placed", map[string]any{header: "Sales.OrderPlaced, Sales, Version=1.0.0.0;Sales.IEvent, Sales, Version=1.0.0.0"})
	s.publish(topic.queue, "other", map[string]any{header: "Billing.Paid, Billing, Version=1.0.0.0", "Sales.Events+Cancelled": false})
	s.publish(topic.queue, "cancelled", map[string]any{"Sales.Events+Cancelled": true})
	s.gets(3, "placed", "cancelled")

	for _, want := range []int32{http.StatusOK, http.StatusNotFound} {
		if status, answer := rules.ask(1, "com.microsoft:remove-rule", map[string]any{"rule-name": "Sales.OrderPlaced"}); status != want {
			s.Errorf("remove: status %d, want %d (%v)", status, want, answer)
		}
	}
	s.publish(topic.queue, "placed later", map[string]any{header: "Sales.OrderPlaced, Sales"})
	s.publish(topic.queue, "cancelled later", map[string]any{"Sales.Events+Cancelled": true})
	s.gets(2, "cancelled later")
}

// nServiceBusHierarchy: endpoints may publish to one topic and subscribe to another one, to which a subscription of the first leads.
func nServiceBusHierarchy(s suite) {
	s.awaitFormatLevel()
	from := s.topic(nil).queue
	to := suite.topic(suite{Cluster: s.Cluster, T: s.T, ctx: s.ctx, queue: s.queue + ".to", pace: s.pace}, nil).queue
	props := nServiceBusSubscription(to)
	props.DefaultRule = &admin.RuleProperties{Name: "$default", Filter: &admin.TrueFilter{}}
	_, err := s.admin(1).CreateSubscription(s.ctx, from, "forwardTo-bundle-2", &admin.CreateSubscriptionOptions{Properties: &props})
	s.must("create the subscription between the topics", err)
	endpoint := nServiceBusSubscription(s.queue)
	_, err = s.admin(2).CreateSubscription(s.ctx, to, "endpoint", &admin.CreateSubscriptionOptions{Properties: &endpoint})
	s.must("create the subscription of the endpoint", err)
	s.publish(from, "event", map[string]any{"NServiceBus.EnclosedMessageTypes": "Sales.OrderPlaced"})
	s.gets(3, "event")
}

// nServiceBusBatches: messages go in batches of what the link takes, with times to live and times at which they become
// available; a message too large for a batch goes alone, and a topic that does not exist is left out.
func nServiceBusBatches(s suite) {
	sender := s.sender(1)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("new batch", err)
	due := time.Now().Add(2 * s.pace)
	for i, m := range []*azservicebus.Message{
		{Body: []byte("now")}, {Body: []byte("later"), ScheduledEnqueueTime: &due}, {Body: make([]byte, 1024), TimeToLive: ptr(time.Hour)},
	} {
		m.MessageID = ptr(fmt.Sprintf("m%d", i+1))
		s.must("add", batch.AddMessage(m, nil))
	}
	large := &azservicebus.Message{MessageID: ptr("large"), Body: make([]byte, 256*1024-512)}
	if err := batch.AddMessage(large, nil); err == nil {
		s.Error("a message of nearly 256 KiB fits beside others")
	}
	s.must("send the batch", sender.SendMessageBatch(s.ctx, batch, nil))
	s.must("send the large message alone", sender.SendMessage(s.ctx, large, nil))
	got := map[string]bool{}
	r := s.receiver(2)
	for range 4 {
		m := s.receiveOne(r)
		got[m.MessageID] = true
		if m.MessageID == "m2" {
			s.notBefore("the scheduled message", due, *m.EnqueuedTime)
		}
	}
	s.same("received", map[string]bool{"m1": true, "m2": true, "m3": true, "large": true}, got)
	nobody, err := s.client(3).NewSender("no-such-topic", nil)
	s.must("new sender", err)
	_, err = nobody.NewMessageBatch(s.ctx, nil)
	wantCode(s, "a batch for no topic", err, azservicebus.CodeNotFound)
}

// rebusTopology: Rebus asks whether its queue exists, creates it, changes it where it differs from its settings, by writing what it
// has read, and lets the subscription of each event lead to it after it has been created.
func rebusTopology(s suite) {
	queue := s.queue + ".input"
	found, err := s.admin(1).GetQueue(s.ctx, queue, nil)
	s.must("look for the queue", err)
	if found != nil {
		s.Errorf("there is such a queue: %+v", found)
	}
	props := admin.QueueProperties{
		EnablePartitioning: ptr(true), LockDuration: ptr("PT1M"), DefaultMessageTimeToLive: ptr("P1D"), RequiresDuplicateDetection: ptr(true),
		DuplicateDetectionHistoryTimeWindow: ptr("PT20S"), AutoDeleteOnIdle: ptr("PT5M"), MaxDeliveryCount: ptr(int32(100)),
	}
	_, err = s.admin(1).CreateQueue(s.ctx, queue, &admin.CreateQueueOptions{Properties: &props})
	s.must("create the queue", err)
	read, err := s.admin(2).GetQueue(s.ctx, queue, nil)
	s.must("read the queue", err)
	changed := read.QueueProperties
	changed.LockDuration, changed.DefaultMessageTimeToLive, changed.AutoDeleteOnIdle = ptr("PT5M"), ptr("P7D"), ptr("PT1H")
	updated, err := s.admin(3).UpdateQueue(s.ctx, queue, changed, nil)
	s.must("change the queue", err)
	s.same("changed", changed, updated.QueueProperties)

	topic := s.topic(nil).queue
	_, err = s.admin(1).CreateSubscription(s.ctx, topic, "input", nil)
	s.must("create the subscription", err)
	sub, err := s.admin(2).GetSubscription(s.ctx, topic, "input", nil)
	s.must("read the subscription", err)
	sub.ForwardTo = &queue
	_, err = s.admin(2).UpdateSubscription(s.ctx, topic, "input", sub.SubscriptionProperties, nil)
	s.must("let the subscription lead to the queue", err)
	again, err := s.admin(2).GetSubscription(s.ctx, topic, "input", nil)
	s.must("read it again", err)
	s.same("ForwardTo", s.namespaceURL(2, queue), *again.ForwardTo)
	for range 2 { // the second is a duplicate
		s.publish(topic, "event", map[string]any{"rbs2-msg-id": "event"})
	}
	s.queue = queue
	s.gets(3, "event")
}
