package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/test/harness"
)

// adminChecks run the official administration client against the ATOM API. The client always uses
// https; like the samples for the emulator, these cases give it a transport that uses http.
func adminChecks() []check {
	return []check{
		{name: "queues", run: adminQueues},
		{name: "partitioned", run: adminPartitioned},
		{name: "topics", run: adminTopics},
		{name: "subscriptions", run: adminSubscriptions},
		{name: "rules", run: adminRules},
		{name: "lists", run: adminLists},
		{name: "runtime properties", run: adminRuntime},
		{name: "forwarding", run: adminForwarding},
		{name: "namespace", run: adminNamespace},
		{name: "refused", run: adminRefused},
		{name: "keys", run: adminKeys},
		{name: "access rules", run: adminAccess},
		{name: "namespaces", run: adminNamespaces},
		{name: "refusals of the service", run: adminServiceRefusals},
		{name: "read back as given", run: adminReadBack},
		{name: "last use", run: adminLastUse},
		{name: "use in lists", run: adminUseInLists},
		{name: "values of rules", run: adminRuleValues},
		{name: "names of frameworks", run: adminFrameworkNames},
	}
}

// everAfter is how the service writes a duration without end.
const everAfter = "P10675199DT2H48M5.4775807S"

// plainHTTP is a transport that replaces https with http for clients that insist on https.
type plainHTTP struct{}

// Do sends the request over http.
func (plainHTTP) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return http.DefaultClient.Do(r)
}

// admin opens the official administration client at member 1, 2 or 3.
func (s suite) admin(member int) *admin.Client {
	s.Helper()
	return s.adminWith(member, harness.Key)
}

func (s suite) adminWith(member int, key string) *admin.Client {
	s.Helper()
	options := &admin.ClientOptions{}
	options.Transport = plainHTTP{}
	options.Retry.MaxRetries = -1 // a retry would hide the failure
	text := "Endpoint=sb://" + s.Members[member-1].Admin + ";SharedAccessKeyName=" + harness.KeyName + ";SharedAccessKey=" + key
	c, err := admin.NewClientFromConnectionString(text, options)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// refusedAs asserts that the service refused with a status and a text.
func (s suite) refusedAs(what string, err error, status int, text string) {
	s.Helper()
	if err == nil || !strings.Contains(err.Error(), "RESPONSE "+strconv.Itoa(status)) || !strings.Contains(err.Error(), text) {
		s.Errorf("%s: %v, want status %d and %q", what, err, status, text)
	}
}

// queueDefaults returns the service's defaults as its own client shows them.
func queueDefaults() admin.QueueProperties {
	active := admin.EntityStatusActive
	return admin.QueueProperties{
		LockDuration: ptr("PT1M"), MaxSizeInMegabytes: ptr(int32(1024)), RequiresDuplicateDetection: ptr(false), RequiresSession: ptr(false),
		DefaultMessageTimeToLive: ptr(everAfter), DeadLetteringOnMessageExpiration: ptr(false), DuplicateDetectionHistoryTimeWindow: ptr("PT10M"),
		MaxDeliveryCount: ptr(int32(10)), EnableBatchedOperations: ptr(true), Status: &active, AutoDeleteOnIdle: ptr(everAfter),
		EnablePartitioning: ptr(false), MaxMessageSizeInKilobytes: ptr(int64(256)),
	}
}

// same asserts that two answers are equal. Missing and empty lists of access rules are equal.
func (s suite) same(what string, want, got any) {
	s.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

func adminQueues(s suite) {
	name := s.queue + "/made"
	created, err := s.admin(1).CreateQueue(s.ctx, name, nil)
	s.must("create", err)
	s.same("created", queueDefaults(), created.QueueProperties)
	_, err = s.admin(2).CreateQueue(s.ctx, name, nil)
	s.refusedAs("create again", err, http.StatusConflict, "SubCode=40900")

	got, err := s.admin(2).GetQueue(s.ctx, strings.ToUpper(name), nil)
	s.must("get", err)
	s.same("got", queueDefaults(), got.QueueProperties)

	want := got.QueueProperties
	want.LockDuration, want.MaxDeliveryCount, want.UserMetadata = ptr("PT2M30S"), ptr(int32(3)), ptr("a <b> & \"c\"")
	want.DefaultMessageTimeToLive, want.AutoDeleteOnIdle = ptr("P1DT1H"), ptr("PT5M")
	updated, err := s.admin(3).UpdateQueue(s.ctx, name, want, nil)
	s.must("update", err)
	s.same("updated", want, updated.QueueProperties)
	want.UserMetadata = nil // the client does not send it, so it is not set
	_, err = s.admin(1).UpdateQueue(s.ctx, name, want, nil)
	s.must("clear a text", err)
	got, err = s.admin(2).GetQueue(s.ctx, name, nil)
	s.must("get again", err)
	s.same("got again", want, got.QueueProperties)

	_, err = s.admin(3).DeleteQueue(s.ctx, name, nil)
	s.must("delete", err)
	got, err = s.admin(1).GetQueue(s.ctx, name, nil)
	s.must("get what is deleted", err)
	if got != nil {
		s.Errorf("a deleted queue is still there: %+v", got)
	}
	_, err = s.admin(2).DeleteQueue(s.ctx, name, nil)
	s.refusedAs("delete again", err, http.StatusNotFound, "could not be found")
	_, err = s.admin(2).UpdateQueue(s.ctx, name, want, nil)
	s.refusedAs("update what is deleted", err, http.StatusNotFound, "could not be found")
}

// adminPartitioned: the settings made at creation are shown, used and unchangeable.
func adminPartitioned(s suite) {
	name := s.queue + "-spread"
	want := queueDefaults()
	want.EnablePartitioning, want.MaxSizeInMegabytes = ptr(true), ptr(int32(16*1024)) // of 16 partitions
	_, err := s.admin(1).CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{EnablePartitioning: ptr(true)}})
	s.must("create", err)
	got, err := s.admin(2).GetQueue(s.ctx, name, nil)
	s.must("get", err)
	s.same("got", want, got.QueueProperties)
	again, err := s.admin(3).UpdateQueue(s.ctx, name, got.QueueProperties, nil)
	s.must("put back", err)
	s.same("put back", want, again.QueueProperties)
	want.EnablePartitioning = ptr(false)
	_, err = s.admin(3).UpdateQueue(s.ctx, name, want, nil)
	s.refusedAs("change it", err, http.StatusBadRequest, "SubCode=40000")
}

func adminTopics(s suite) {
	active, disabled := admin.EntityStatusActive, admin.EntityStatusSendDisabled
	name := s.queue + "-topic"
	want := admin.TopicProperties{
		MaxSizeInMegabytes: ptr(int32(2048)), RequiresDuplicateDetection: ptr(true), DefaultMessageTimeToLive: ptr("PT1H"),
		DuplicateDetectionHistoryTimeWindow: ptr("PT30S"), EnableBatchedOperations: ptr(true), Status: &active, UserMetadata: ptr("mine"),
		AutoDeleteOnIdle: ptr(everAfter), EnablePartitioning: ptr(false), SupportOrdering: ptr(true), MaxMessageSizeInKilobytes: ptr(int64(256)),
	}
	created, err := s.admin(1).CreateTopic(s.ctx, name, &admin.CreateTopicOptions{Properties: &want})
	s.must("create", err)
	s.same("created", want, created.TopicProperties)
	want.Status = &disabled
	_, err = s.admin(2).UpdateTopic(s.ctx, name, want, nil)
	s.must("update", err)
	got, err := s.admin(3).GetTopic(s.ctx, name, nil)
	s.must("get", err)
	s.same("got", want, got.TopicProperties)
	_, err = s.admin(3).CreateQueue(s.ctx, name, nil)
	s.refusedAs("a queue of the same name", err, http.StatusConflict, "SubCode=40900")
	want.RequiresDuplicateDetection = ptr(false)
	_, err = s.admin(2).UpdateTopic(s.ctx, name, want, nil)
	s.refusedAs("change what is fixed", err, http.StatusBadRequest, "SubCode=40000")
	_, err = s.admin(1).DeleteTopic(s.ctx, name, nil)
	s.must("delete", err)
	got, err = s.admin(2).GetTopic(s.ctx, name, nil)
	s.must("get what is deleted", err)
	if got != nil {
		s.Errorf("a deleted topic is still there: %+v", got)
	}
}

func adminSubscriptions(s suite) {
	active := admin.EntityStatusActive
	topic := s.topic(nil).queue
	_, err := s.admin(1).CreateSubscription(s.ctx, topic, "plain", nil)
	s.must("create", err)
	rule, err := s.admin(2).GetRule(s.ctx, topic, "plain", "$Default", nil)
	s.must("get the default rule", err)
	s.same("the default rule", admin.RuleProperties{Name: "$Default", Filter: &admin.TrueFilter{}}, rule.RuleProperties)

	want := admin.SubscriptionProperties{
		LockDuration: ptr("PT5S"), RequiresSession: ptr(true), DefaultMessageTimeToLive: ptr("PT2M"), DeadLetteringOnMessageExpiration: ptr(true),
		EnableDeadLetteringOnFilterEvaluationExceptions: ptr(false), MaxDeliveryCount: ptr(int32(2000)), Status: &active,
		AutoDeleteOnIdle: ptr("PT10M"), EnableBatchedOperations: ptr(true), UserMetadata: ptr("ours"),
	}
	given := want
	given.DefaultRule = &admin.RuleProperties{Name: "first", Filter: &admin.SQLFilter{Expression: "color = 'red'"}}
	created, err := s.admin(2).CreateSubscription(s.ctx, topic, "audit", &admin.CreateSubscriptionOptions{Properties: &given})
	s.must("create with settings", err)
	s.same("created", want, created.SubscriptionProperties)
	rule, err = s.admin(3).GetRule(s.ctx, topic, "audit", "first", nil)
	s.must("get the first rule", err)
	s.same("the first rule", given.DefaultRule.Filter, rule.Filter)

	want.MaxDeliveryCount = ptr(int32(1))
	_, err = s.admin(1).UpdateSubscription(s.ctx, topic, "audit", want, nil)
	s.must("update", err)
	got, err := s.admin(2).GetSubscription(s.ctx, topic, "AUDIT", nil)
	s.must("get", err)
	s.same("got", want, got.SubscriptionProperties)

	_, err = s.admin(3).CreateSubscription(s.ctx, topic, "audit", nil)
	s.refusedAs("create again", err, http.StatusConflict, "SubCode=40900")
	_, err = s.admin(3).CreateSubscription(s.ctx, "no-topic", "audit", nil)
	s.refusedAs("create without a topic", err, http.StatusNotFound, "'no-topic' could not be found")
	_, err = s.admin(3).DeleteSubscription(s.ctx, topic, "audit", nil)
	s.must("delete", err)
	got, err = s.admin(1).GetSubscription(s.ctx, topic, "audit", nil)
	s.must("get what is deleted", err)
	if got != nil {
		s.Errorf("a deleted subscription is still there: %+v", got)
	}
}

// adminRulesWritten returns rules as the client writes them and reads them back.
func adminRulesWritten() []admin.RuleProperties {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return []admin.RuleProperties{
		{Name: "everything", Filter: &admin.TrueFilter{}},
		{Name: "nothing", Filter: &admin.FalseFilter{}},
		{Name: "sql", Filter: &admin.SQLFilter{
			Expression: "color <> @color AND size >= @size OR late = @late", Parameters: map[string]any{
				"@color": "<red & \"blue\">", "@size": int64(-7), "@late": true, "@weight": 2.5, "@at": noon,
			},
		}},
		{Name: "correlation", Filter: &admin.CorrelationFilter{
			ContentType: ptr("text/plain"), CorrelationID: ptr("c"), MessageID: ptr("m"), ReplyTo: ptr("r"), ReplyToSessionID: ptr("rs"),
			SessionID: ptr("s"), Subject: ptr("order"), To: ptr("t"), ApplicationProperties: map[string]any{"color": "red", "sys.Label": "x", "count": int64(3)},
		}},
		{Name: "one property", Filter: &admin.CorrelationFilter{Subject: ptr("order")}},
		{Name: "action", Filter: &admin.SQLFilter{Expression: "1=1"}, Action: &admin.SQLAction{
			Expression: "SET color = @color", Parameters: map[string]any{"@color": "green"},
		}},
	}
}

func adminRules(s suite) {
	topic := s.topic(nil).queue
	_, err := s.admin(1).CreateSubscription(s.ctx, topic, "sub", nil)
	s.must("create", err)
	_, err = s.admin(1).DeleteRule(s.ctx, topic, "sub", "$Default", nil)
	s.must("delete the default rule", err)
	written := adminRulesWritten()
	for i, want := range written {
		name := strings.ReplaceAll(want.Name, " ", "%20") // the client leaves the escaping to the application
		written[i].Name = want.Name
		created, err := s.admin(1+i%3).CreateRule(s.ctx, topic, "sub", &admin.CreateRuleOptions{Name: &want.Name, Filter: want.Filter, Action: want.Action})
		s.must("create "+want.Name, err)
		s.same("created "+want.Name, want, created.RuleProperties)
		got, err := s.admin(1+(i+1)%3).GetRule(s.ctx, topic, "sub", name, nil)
		s.must("get "+want.Name, err)
		s.same("got "+want.Name, want, got.RuleProperties)
	}
	// Without a name, the client's path ends with a slash.
	byDefault, err := s.admin(2).CreateRule(s.ctx, topic, "sub", &admin.CreateRuleOptions{})
	s.must("create the default rule", err)
	s.same("the default rule", admin.RuleProperties{Name: "$Default", Filter: &admin.TrueFilter{}}, byDefault.RuleProperties)
	_, err = s.admin(2).CreateRule(s.ctx, topic, "sub", &admin.CreateRuleOptions{})
	s.refusedAs("create it again", err, http.StatusConflict, "SubCode=40900")

	var listed []admin.RuleProperties
	for pager := s.admin(3).NewListRulesPager(topic, "sub", &admin.ListRulesOptions{MaxPageSize: 3}); pager.More(); {
		page, err := pager.NextPage(s.ctx)
		s.must("list", err)
		listed = append(listed, page.Rules...)
	}
	all := append(written, byDefault.RuleProperties)
	slices.SortFunc(all, func(a, b admin.RuleProperties) int {
		return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})
	s.same("listed by name", all, listed)

	changed := admin.RuleProperties{Name: "sql", Filter: &admin.SQLFilter{Expression: "1=0"}}
	updated, err := s.admin(1).UpdateRule(s.ctx, topic, "sub", changed)
	s.must("update", err)
	s.same("updated", changed, updated.RuleProperties)
	changed.Name = "none"
	_, err = s.admin(2).UpdateRule(s.ctx, topic, "sub", changed)
	s.refusedAs("update what is not there", err, http.StatusNotFound, "SubCode=40400")
	_, err = s.admin(3).CreateRule(s.ctx, topic, "sub", &admin.CreateRuleOptions{Name: ptr("bad"), Filter: &admin.SQLFilter{Expression: "color ="}})
	s.refusedAs("create what is no filter", err, http.StatusBadRequest, "SubCode=40000")
	none, err := s.admin(1).GetRule(s.ctx, topic, "sub", "none", nil)
	s.must("get what is not there", err)
	if none != nil {
		s.Errorf("there is a rule none: %+v", none)
	}
}

// adminLists checks only its own entities, because other cases create and delete entities concurrently.
func adminLists(s suite) {
	topic := s.topic(nil).queue
	var want []string
	for i := range 7 {
		name := fmt.Sprintf("sub-%d", i)
		_, err := s.admin(1+i%3).CreateSubscription(s.ctx, topic, name, nil)
		s.must("create "+name, err)
		want = append(want, name)
	}
	for _, size := range []int32{0, 1, 3, 7, 1000} {
		var got []string
		pages := 0
		for pager := s.admin(2).NewListSubscriptionsPager(topic, &admin.ListSubscriptionsOptions{MaxPageSize: size}); pager.More(); pages++ {
			page, err := pager.NextPage(s.ctx)
			s.must("list", err)
			for i := range page.Subscriptions {
				s.same("topic", topic, page.Subscriptions[i].TopicName)
				got = append(got, page.Subscriptions[i].SubscriptionName)
			}
		}
		s.same(fmt.Sprintf("subscriptions by %d", size), want, got)
	}
	queues := map[string]bool{}
	for pager := s.admin(3).NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2}); pager.More(); {
		page, err := pager.NextPage(s.ctx)
		s.must("list queues", err)
		for i := range page.Queues {
			queues[page.Queues[i].QueueName] = true
		}
	}
	topics := map[string]bool{}
	for pager := s.admin(3).NewListTopicsPager(nil); pager.More(); {
		page, err := pager.NextPage(s.ctx)
		s.must("list topics", err)
		for i := range page.Topics {
			topics[page.Topics[i].TopicName] = true
		}
	}
	if !queues[s.queue] || queues[topic] || !topics[topic] || topics[s.queue] {
		s.Errorf("queue %s and topic %s, listed: queues %v, topics %v", s.queue, topic, queues, topics)
	}
	_, err := s.admin(1).NewListSubscriptionsPager("no-topic", nil).NextPage(s.ctx)
	s.refusedAs("list of no topic", err, http.StatusNotFound, "could not be found")
}

func adminRuntime(s suite) {
	topic := s.topic(nil)
	_, err := s.admin(1).CreateSubscription(s.ctx, topic.queue, "sub", nil)
	s.must("create", err)
	sender := topic.sender(1)
	s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("body")}, nil))
	_, err = sender.ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("later")}}, time.Now().Add(time.Hour), nil)
	s.must("schedule", err)
	s.send(5)
	first := s.receiver(1)
	messages := s.receive(first, 2)
	s.must("dead-letter", first.DeadLetterMessage(s.ctx, messages[0], nil))
	s.must("defer", first.DeferMessage(s.ctx, messages[1], nil))
	s.counts(harness.Counts{Active: 3, Deferred: 1, DeadLetter: 1})

	for member := 1; member <= 3; member++ {
		q, err := s.admin(member).GetQueueRuntimeProperties(s.ctx, s.queue, nil)
		s.must("queue", err)
		if q.TotalMessageCount != 5 || q.ActiveMessageCount != 3 || q.DeadLetterMessageCount != 1 || q.SizeInBytes == 0 {
			s.Errorf("queue at member %d: %+v", member, q.QueueRuntimeProperties)
		}
		if time.Since(q.CreatedAt) > caseWithin || q.UpdatedAt.Before(q.CreatedAt) || q.AccessedAt.Before(q.CreatedAt) {
			s.Errorf("times of the queue: %+v", q.QueueRuntimeProperties)
		}
		t, err := s.admin(member).GetTopicRuntimeProperties(s.ctx, topic.queue, nil)
		s.must("topic", err)
		if t.SubscriptionCount != 1 || t.ScheduledMessageCount != 1 || t.SizeInBytes == 0 {
			s.Errorf("topic at member %d: %+v", member, t.TopicRuntimeProperties)
		}
		sub, err := s.admin(member).GetSubscriptionRuntimeProperties(s.ctx, topic.queue, "sub", nil)
		s.must("subscription", err)
		if sub.TotalMessageCount != 1 || sub.ActiveMessageCount != 1 || sub.CreatedAt.IsZero() {
			s.Errorf("subscription at member %d: %+v", member, sub.SubscriptionRuntimeProperties)
		}
	}
	pager := s.admin(2).NewListSubscriptionsRuntimePropertiesPager(topic.queue, nil)
	page, err := pager.NextPage(s.ctx)
	s.must("list", err)
	if list := page.SubscriptionRuntimeProperties; len(list) != 1 || list[0].ActiveMessageCount != 1 {
		s.Errorf("listed: %+v", list)
	}
}

// adminForwarding sets the destination as a name and as an address; the client signs both.
func adminForwarding(s suite) {
	for i, to := range []string{s.queue, "sb://" + s.Members[0].Admin + "/" + s.queue} {
		name := fmt.Sprintf("%s-from-%d", s.queue, i)
		props := admin.QueueProperties{ForwardTo: &to, ForwardDeadLetteredMessagesTo: &to}
		_, err := s.admin(1).CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: &props})
		s.must("create "+name, err)
		got, err := s.admin(2).GetQueue(s.ctx, name, nil)
		s.must("get "+name, err)
		want := "sb://" + s.Members[1-i].Admin + "/" + s.queue // of a bare name: the host of the request that reads
		s.same("destinations", []*string{&want, &want}, []*string{got.ForwardTo, got.ForwardDeadLetteredMessagesTo})
		sender, err := s.client(1+i).NewSender(name, nil)
		s.must("sender", err)
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("body")}, nil))
	}
	s.receive(s.receiver(3), 2)
	missing := admin.QueueProperties{ForwardTo: ptr("no-such-queue")}
	_, err := s.admin(3).CreateQueue(s.ctx, s.queue+"-to-nowhere", &admin.CreateQueueOptions{Properties: &missing})
	if err == nil {
		s.Error("a queue forwards to nowhere")
	}
}

func adminNamespace(s suite) {
	got, err := s.admin(1).GetNamespaceProperties(s.ctx, nil)
	s.must("get", err)
	if got.Name == "" || got.SKU != "Standard" {
		s.Errorf("%+v", got)
	}
}

func adminRefused(s suite) {
	for text, props := range map[string]admin.QueueProperties{
		"LockDuration is PT1S to PT5M":   {LockDuration: ptr("PT6M")},
		"MaxDeliveryCount is 1 to 21474": {MaxDeliveryCount: ptr(int32(0))},
		"LockDuration: \"soon\"":         {LockDuration: ptr("soon")},
		"in a Premium namespace":         {MaxMessageSizeInKilobytes: ptr(int64(100 * 1024))},
		"AutoDeleteOnIdle is PT5M":       {AutoDeleteOnIdle: ptr("PT1M")},
		"Status is one of Active":        {Status: ptr(admin.EntityStatus("Renaming"))},
		"UserMetadata is at most 1024 b": {UserMetadata: ptr(strings.Repeat("x", 1025))},
	} {
		_, err := s.admin(1).CreateQueue(s.ctx, s.queue+"-refused", &admin.CreateQueueOptions{Properties: &props})
		s.refusedAs(text, err, http.StatusBadRequest, text)
	}
	_, err := s.admin(1).CreateQueue(s.ctx, "-bad-", nil)
	s.refusedAs("a bad name", err, http.StatusBadRequest, "begins with a letter")
	rules := admin.QueueProperties{AuthorizationRules: []admin.AuthorizationRule{{KeyName: ptr("k"), PrimaryKey: ptr("p"), SecondaryKey: ptr("s")}}}
	_, err = s.admin(1).CreateQueue(s.ctx, s.queue+"-refused", &admin.CreateQueueOptions{Properties: &rules})
	s.refusedAs("an access rule without rights", err, http.StatusBadRequest, "it has no rights")
}

// adminKeys: a wrong key is refused.
func adminKeys(s suite) {
	_, err := s.adminWith(1, "another key").GetQueue(s.ctx, s.queue, nil)
	s.refusedAs("a wrong key", err, http.StatusUnauthorized, "401")
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+s.Members[0].Admin+"/"+s.queue+"?api-version=2017-04", nil)
	s.must("request", err)
	request.Header.Set("Authorization", "eyJhbGciOiJub25lIn0.e30.")
	answer, err := http.DefaultClient.Do(request)
	s.must("ask with a JWT", err)
	s.must("close", answer.Body.Close())
	if answer.StatusCode != http.StatusUnauthorized {
		s.Errorf("a JWT: %s", answer.Status)
	}
}
