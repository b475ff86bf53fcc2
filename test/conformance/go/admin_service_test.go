package conformance

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

// adminServiceRefusals: the words and statuses that the client's own live tests expect of the service.
func adminServiceRefusals(s suite) {
	topic := s.topic(nil).queue
	_, err := s.admin(1).CreateSubscription(s.ctx, topic, "sub", nil)
	s.must("create", err)
	queue, err := s.admin(1).GetQueue(s.ctx, s.queue, nil)
	s.must("get", err)
	queue.RequiresSession = ptr(true)
	_, err = s.admin(2).UpdateQueue(s.ctx, s.queue, queue.QueueProperties, nil)
	s.refusedAs("change a queue", err, http.StatusBadRequest, "The value for the RequiresSession property of an existing Queue cannot be changed")
	_, err = s.admin(2).UpdateSubscription(s.ctx, topic, "sub", admin.SubscriptionProperties{RequiresSession: ptr(true)}, nil)
	s.refusedAs("change a subscription", err, http.StatusBadRequest, "The value for the RequiresSession property of an existing Subscription cannot be changed")

	low, err := s.adminClient(s.Members[1].Admin, s.Members[1].Admin, harness.SendKeyName, harness.Key)
	s.must("client", err)
	const read, write = "Manage,EntityRead claims required for this operation", "Authorization failed for specified action: Manage,EntityWrite"
	found, err := low.GetQueue(s.ctx, "no-such-queue", nil)
	s.must("get a queue that does not exist", err)
	topicFound, err := low.GetTopicRuntimeProperties(s.ctx, "no-such-topic", nil)
	s.must("get a topic that does not exist", err)
	if found != nil || topicFound != nil {
		s.Error("found what does not exist")
	}
	_, err = low.GetQueue(s.ctx, s.queue, nil)
	s.refusedAs("get a queue", err, http.StatusUnauthorized, ">"+read)
	_, err = low.NewListTopicsPager(nil).NextPage(s.ctx)
	s.refusedAs("list topics", err, http.StatusUnauthorized, ">"+read)
	_, err = low.CreateQueue(s.ctx, "never-made", nil)
	s.refusedAs("create a queue", err, http.StatusUnauthorized, write)
	_, err = low.UpdateTopic(s.ctx, "never-made", admin.TopicProperties{}, nil)
	s.refusedAs("update a topic", err, http.StatusUnauthorized, write)
	_, err = low.DeleteQueue(s.ctx, s.queue, nil)
	s.refusedAs("delete a queue", err, http.StatusUnauthorized, "Authorization failed for specified action: Manage,EntityDelete.")

	of := func(operation string) string {
		return "401 SubCode=40100: Unauthorized : Unauthorized access for '" + operation + "' operation"
	}
	_, err = low.GetSubscription(s.ctx, topic, "not-found-sub", nil)
	s.refusedAs("get a subscription that does not exist", err, http.StatusUnauthorized, of("GetSubscription"))
	_, err = low.GetSubscription(s.ctx, topic, "sub", nil)
	s.refusedAs("get a subscription", err, http.StatusUnauthorized, of("GetSubscription"))
	_, err = low.NewListSubscriptionsPager(topic, nil).NextPage(s.ctx)
	s.refusedAs("list subscriptions", err, http.StatusUnauthorized, of("EnumerateSubscriptions"))
	_, err = low.CreateSubscription(s.ctx, topic, "never-made", nil)
	s.refusedAs("create a subscription", err, http.StatusUnauthorized, of("CreateOrUpdateSubscription"))
	_, err = low.DeleteSubscription(s.ctx, topic, "sub", nil)
	s.refusedAs("delete a subscription", err, http.StatusUnauthorized, of("DeleteSubscription"))
	_, err = low.GetRule(s.ctx, topic, "sub", "$Default", nil)
	s.refusedAs("get a rule", err, http.StatusUnauthorized, of("GetRule"))
}

// awaitFormatLevel waits until the catalog of the new cluster stores what needs its newest format level.
func (s suite) awaitFormatLevel() {
	s.Helper()
	props := admin.QueueProperties{MaxDeliveryCount: ptr(int32(2001))}
	kit.Eventually(s.T, "the format level has risen", func() bool {
		_, err := s.admin(1).CreateQueue(s.ctx, s.queue+"-level", &admin.CreateQueueOptions{Properties: &props})
		return err == nil
	})
}

// subscribe makes a subscription, and waits until the partition of the topic has the format level of the cluster.
func (s suite) subscribe(topic, name string) *admin.GetTopicRuntimePropertiesResponse {
	s.Helper()
	s.awaitFormatLevel()
	var found *admin.GetTopicRuntimePropertiesResponse
	kit.Eventually(s.T, "the topic has a time of use", func() bool {
		_, err := s.admin(1).CreateSubscription(s.ctx, topic, name, nil)
		s.must("subscribe", err)
		found, err = s.admin(2).GetTopicRuntimeProperties(s.ctx, topic, nil)
		s.must("get the topic", err)
		if found.AccessedAt.IsZero() {
			_, err = s.admin(1).DeleteSubscription(s.ctx, topic, name, nil)
			s.must("unsubscribe", err)
		}
		return !found.AccessedAt.IsZero()
	})
	return found
}

// adminReadBack: settings without effect and destinations come back as they were given.
func adminReadBack(s suite) {
	s.awaitFormatLevel()
	name, to := s.queue+"-hints", "https://bus.example.com/"+s.queue
	props := admin.QueueProperties{EnableBatchedOperations: ptr(false), ForwardTo: &to, ForwardDeadLetteredMessagesTo: &to}
	_, err := s.admin(1).CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: &props})
	s.must("create", err)
	got, err := s.admin(2).GetQueue(s.ctx, name, nil)
	s.must("get", err)
	want := queueDefaults()
	want.EnableBatchedOperations, want.ForwardTo, want.ForwardDeadLetteredMessagesTo = ptr(false), &to, &to
	s.same("queue", want, got.QueueProperties)
	again, err := s.admin(3).UpdateQueue(s.ctx, name, got.QueueProperties, nil)
	s.must("put back", err)
	s.same("put back", want, again.QueueProperties)
	sender, err := s.client(1).NewSender(name, nil)
	s.must("sender", err)
	s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("body")}, nil))
	s.receive(s.receiver(2), 1)

	topic := s.topic(nil).queue
	for _, ordering := range []*bool{nil, ptr(true), ptr(false)} {
		_, err = s.admin(1).UpdateTopic(s.ctx, topic, admin.TopicProperties{SupportOrdering: ordering}, nil)
		s.must("update", err)
		shown, err := s.admin(2).GetTopic(s.ctx, topic, nil)
		s.must("get", err)
		s.same("SupportOrdering", ordering == nil || *ordering, *shown.SupportOrdering)
	}
}

// adminLastUse: AccessedAt is the last send, receive or settlement, and a topic has the numbers of its filters.
func adminLastUse(s suite) {
	name, topic := s.queue+"-used", s.topic(nil).queue
	_, err := s.admin(1).CreateQueue(s.ctx, name, nil)
	s.must("create", err)
	fresh, err := s.admin(1).GetTopicRuntimeProperties(s.ctx, topic, nil)
	s.must("get the topic", err)
	s.subscribe(topic, "sub")
	_, err = s.admin(1).CreateRule(s.ctx, topic, "sub", &admin.CreateRuleOptions{Name: ptr("c"), Filter: &admin.CorrelationFilter{CorrelationID: ptr("x")}})
	s.must("create a rule", err)
	used, err := s.admin(2).GetTopicRuntimeProperties(s.ctx, topic, nil)
	s.must("get the topic", err)
	if !fresh.AccessedAt.IsZero() || used.AccessedAt.IsZero() || used.SQLFilterCount != 1 || used.CorrelationFilterCount != 1 {
		s.Errorf("topic: %+v, then %+v", fresh.TopicRuntimeProperties, used.TopicRuntimeProperties)
	}
	sub, err := s.admin(3).GetSubscriptionRuntimeProperties(s.ctx, topic, "sub", nil)
	s.must("get the subscription", err)
	if !sub.AccessedAt.Equal(sub.CreatedAt) {
		s.Errorf("subscription: %+v", sub.SubscriptionRuntimeProperties)
	}
	at := func() time.Time {
		q, err := s.admin(2).GetQueueRuntimeProperties(s.ctx, name, nil)
		s.must("get the queue", err)
		return q.AccessedAt
	}
	receiver, err := s.client(2).NewReceiverForQueue(name, nil)
	s.must("receiver", err)
	_, err = receiver.PeekMessages(s.ctx, 1, nil)
	s.must("peek", err)
	if last := at(); !last.IsZero() {
		s.Errorf("never used, and accessed at %v", last)
	}
	sender, err := s.client(1).NewSender(name, nil)
	s.must("sender", err)
	var sent time.Time
	kit.Eventually(s.T, "the queue has a time of use", func() bool {
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("body")}, nil))
		sent = at()
		return !sent.IsZero()
	})
	messages, err := receiver.ReceiveMessages(s.ctx, 1, nil)
	s.must("receive", err)
	s.must("complete", receiver.CompleteMessage(s.ctx, messages[0], nil))
	if settled := at(); !settled.After(sent) {
		s.Errorf("sent at %v, settled at %v", sent, settled)
	}
}

// adminRuleValues: rules are listed by name, with the values that were given.
func adminRuleValues(s suite) {
	topic := s.topic(nil).queue
	s.subscribe(topic, "sub")
	at := time.Date(2026, 11, 22, 20, 30, 40, 123456700, time.UTC)
	want := map[string]any{"@text": "t", "@n": int64(100), "@f": 100.1, "@at": at, "@b": true}
	for _, name := range []string{"z", "M", "a"} {
		_, err := s.admin(2).CreateRule(s.ctx, topic, "sub", &admin.CreateRuleOptions{Name: &name, Filter: &admin.SQLFilter{Expression: "a=@text", Parameters: want}})
		s.must("create rule "+name, err)
	}
	page, err := s.admin(3).NewListRulesPager(topic, "sub", nil).NextPage(s.ctx)
	s.must("list", err)
	var names []string
	for i := range page.Rules {
		names = append(names, page.Rules[i].Name)
	}
	s.same("listed", []string{"$Default", "a", "M", "z"}, names)
	s.same("parameters", want, page.Rules[1].Filter.(*admin.SQLFilter).Parameters)
}

// adminFrameworkNames: names and settings that MassTransit and NServiceBus give.
func adminFrameworkNames(s suite) {
	s.awaitFormatLevel()
	for _, name := range []string{s.queue + "/Fault--Ns/Msg--", s.queue + "~x", s.queue + strings.Repeat("n", 260-len(s.queue))} {
		props := admin.QueueProperties{MaxDeliveryCount: ptr(int32(1<<31 - 1))}
		_, err := s.admin(1).CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: &props})
		s.must("create "+name, err)
		got, err := s.admin(2).GetQueue(s.ctx, name, nil)
		s.must("get "+name, err)
		s.same("MaxDeliveryCount", int32(1<<31-1), *got.MaxDeliveryCount)
		sender, err := s.client(3).NewSender(name, nil)
		s.must("sender", err)
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("body")}, nil))
		receiver, err := s.client(1).NewReceiverForQueue(name, nil)
		s.must("receiver", err)
		messages, err := receiver.ReceiveMessages(s.ctx, 1, nil)
		s.must("receive", err)
		s.must("complete", receiver.CompleteMessage(s.ctx, messages[0], nil))
		_, err = s.admin(3).DeleteQueue(s.ctx, name, nil)
		s.must("delete", err)
	}
}

// adminUseInLists: lists show what a single read shows, for entities whose settings were changed before they were used: made
// before the change, and changed before the use.
func adminUseInLists(s suite) {
	name, topic, a := s.queue+"-listed", s.topic(nil).queue, s.admin(2)
	_, err := a.CreateQueue(s.ctx, name, nil)
	s.must("create", err)
	s.subscribe(topic, "sub")
	queue, err := a.GetQueue(s.ctx, name, nil)
	s.must("get", err)
	queue.AutoDeleteOnIdle = ptr("PT100M")
	_, err = a.UpdateQueue(s.ctx, name, queue.QueueProperties, nil)
	s.must("update", err)
	for _, path := range []string{name, topic} {
		sender, err := s.client(1).NewSender(path, nil)
		s.must("sender", err)
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("1")}, nil))
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("2"), ScheduledEnqueueTime: ptr(time.Now().Add(time.Hour))}, nil))
	}
	receiver, err := s.client(3).NewReceiverForSubscription(topic, "sub", nil)
	s.must("receiver", err)
	messages, err := receiver.ReceiveMessages(s.ctx, 1, nil)
	s.must("receive", err)
	s.must("dead-letter", receiver.DeadLetterMessage(s.ctx, messages[0], nil))

	one, err := a.GetQueueRuntimeProperties(s.ctx, name, nil)
	s.must("get", err)
	if !one.CreatedAt.Before(one.UpdatedAt) || !one.UpdatedAt.Before(one.AccessedAt) || one.ActiveMessageCount != 1 || one.ScheduledMessageCount != 1 || one.SizeInBytes == 0 {
		s.Errorf("queue %+v", one.QueueRuntimeProperties)
	}
	found := 0
	for pager := a.NewListQueuesRuntimePropertiesPager(nil); pager.More(); {
		page, err := pager.NextPage(s.ctx)
		s.must("list", err)
		for _, item := range page.QueueRuntimeProperties {
			if item.QueueName == name {
				found++
				s.equal("queue in a list", one.QueueRuntimeProperties, item.QueueRuntimeProperties)
			}
		}
	}
	single, err := a.GetTopicRuntimeProperties(s.ctx, topic, nil)
	s.must("get", err)
	if single.ScheduledMessageCount != 1 || single.SubscriptionCount != 1 || single.SizeInBytes == 0 || single.AccessedAt.IsZero() {
		s.Errorf("topic %+v", single.TopicRuntimeProperties)
	}
	for pager := a.NewListTopicsRuntimePropertiesPager(nil); pager.More(); {
		page, err := pager.NextPage(s.ctx)
		s.must("list", err)
		for _, item := range page.TopicRuntimeProperties {
			if item.TopicName == topic {
				found++
				s.equal("topic in a list", single.TopicRuntimeProperties, item.TopicRuntimeProperties)
			}
		}
	}
	sub, err := a.GetSubscriptionRuntimeProperties(s.ctx, topic, "sub", nil)
	s.must("get", err)
	if sub.DeadLetterMessageCount != 1 || sub.TotalMessageCount != 1 || !sub.AccessedAt.After(sub.CreatedAt) {
		s.Errorf("subscription %+v", sub.SubscriptionRuntimeProperties)
	}
	for pager := a.NewListSubscriptionsRuntimePropertiesPager(topic, nil); pager.More(); {
		page, err := pager.NextPage(s.ctx)
		s.must("list", err)
		for _, item := range page.SubscriptionRuntimeProperties {
			found++
			s.equal("subscription in a list", sub.SubscriptionRuntimeProperties, item.SubscriptionRuntimeProperties)
		}
	}
	if found != 3 {
		s.Errorf("found %d of 3 entities in lists", found)
	}
}

func (s suite) equal(what string, want, got any) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%s (-single +list)\n%s", what, diff)
	}
}
