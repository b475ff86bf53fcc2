package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func ruleChecks() []check {
	return []check{
		{name: "default rule", run: defaultRule},
		{name: "sql filters", run: sqlFilters},
		{name: "correlation filters", run: correlationFilters},
		{name: "parameters", run: parameters},
		{name: "actions", run: actions},
		{name: "actions on system properties", run: systemActions},
		{name: "copies", run: copies},
		{name: "filter errors", run: filterErrors},
		{name: "edit", run: editRules},
		{name: "refused", run: refusedRules},
		{name: "over amqp", run: rulesOverAMQP},
		{name: "many", run: manyRules},
	}
}

// orders returns messages that the rules below distinguish.
func orders() []*azservicebus.Message {
	order := func(id, label string, quantity int64, more map[string]any) *azservicebus.Message {
		properties := map[string]any{"quantity": quantity}
		for k, v := range more {
			properties[k] = v
		}
		return &azservicebus.Message{MessageID: &id, Subject: &label, ApplicationProperties: properties, Body: []byte("body of " + id)}
	}
	return []*azservicebus.Message{
		order("small", "order", 1, map[string]any{"color": "red"}),
		order("large", "order", 100, map[string]any{"color": "blue", "urgent": true}),
		order("odd", "Order", 7, map[string]any{"color": "light_blue", "weight": 2.5}),
		order("plain", "return", 7, nil),
	}
}

// publishAll sends messages to the topic, one by one.
func (s suite) publishAll(messages []*azservicebus.Message) {
	s.Helper()
	sender := s.sender(1)
	for _, m := range messages {
		s.must("send "+*m.MessageID, sender.SendMessage(s.ctx, m, nil))
	}
}

// filtered creates a subscription for each filter, publishes the orders, and asserts which
// orders each subscription gets.
func (s suite) filtered(filters []harness.Rule, want [][]string) {
	s.Helper()
	topic := s.topic(nil)
	subs := make([]suite, len(filters))
	for i, r := range filters {
		r.Name = "the rule"
		subs[i] = topic.subscription(fmt.Sprintf("s%02d", i), harness.Settings{}, r)
	}
	topic.publishAll(orders())
	for i, sub := range subs {
		sub.counts(harness.Counts{Active: uint64(len(want[i]))})
		if len(want[i]) == 0 {
			continue
		}
		got := ids(sub.receive(sub.receiver(i%3+1), len(want[i])))
		if diff := cmp.Diff(want[i], got); diff != "" {
			s.Errorf("%+v (-want +got)\n%s", filters[i], diff)
		}
	}
}

// A new subscription has a rule $Default that matches all messages; without any rule it gets
// no message.
func defaultRule(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	if diff := cmp.Diff([]string{"$Default"}, s.RuleNames(s.T, a.queue)); diff != "" {
		s.Errorf("rules of a new subscription (-want +got)\n%s", diff)
	}
	topic.send(1)
	s.DropRule(s.T, a.queue, "$default")
	topic.send(2)
	a.gets(2, "m1")
	s.AddRule(s.T, a.queue, harness.Rule{Name: "$Default", True: true})
	topic.send(1)
	a.gets(3, "m1")
	b := topic.subscription("b", harness.Settings{}, harness.Rule{Name: "other", False: true})
	topic.send(1)
	a.gets(2, "m1")
	b.counts(harness.Counts{})
	if diff := cmp.Diff([]string{"other"}, s.RuleNames(s.T, b.queue)); diff != "" {
		s.Errorf("rules of a subscription made with one (-want +got)\n%s", diff)
	}
}

// SQL filters select the messages of a subscription.
func sqlFilters(s suite) {
	cases := map[string][]string{
		"quantity > 5":                          {"large", "odd", "plain"},
		"QUANTITY = 7 AND color IS NULL":        {"plain"},
		"user.color LIKE '%blue'":               {"large", "odd"},
		`color LIKE 'light\_%' ESCAPE '\'`:      {"odd"},
		"color IN ('red', 'blue')":              {"small", "large"},
		"color NOT IN ('red', 'blue')":          {"odd"}, // unknown for messages without color
		"EXISTS(color)":                         {"small", "large", "odd"},
		"NOT EXISTS(color)":                     {"plain"},
		"urgent = TRUE":                         {"large"},
		"sys.Label = 'order'":                   {"small", "large"},
		"sys.label = 'order' OR weight > 2":     {"small", "large", "odd"},
		"sys.MessageId <> 'odd'":                {"small", "large", "plain"},
		"quantity % 2 = 1 AND quantity * 2 < 5": {"small"},
		"1=1":                                   {"small", "large", "odd", "plain"},
		"1=0":                                   nil,
		"[color] = 'red'":                       {"small"},
	}
	var filters []harness.Rule
	var want [][]string
	for text, ids := range cases {
		filters = append(filters, harness.Rule{SQL: text})
		want = append(want, ids)
	}
	s.filtered(filters, want)
}

// Correlation filters compare exactly, and every condition must match.
func correlationFilters(s suite) {
	s.filtered([]harness.Rule{
		{Conditions: harness.Fields{"sys.Label": "order"}},
		{Conditions: harness.Fields{"sys.MessageId": "odd"}},
		{Conditions: harness.Fields{"quantity": 7}},
		{Conditions: harness.Fields{"sys.Subject": "return", "quantity": 7}},
		{Conditions: harness.Fields{"color": "red", "quantity": 100}},
		{Conditions: harness.Fields{"user.COLOR": "red"}},
		{Conditions: harness.Fields{"color": "Red"}},
		{Conditions: harness.Fields{"urgent": true}},
		{True: true},
		{False: true},
	}, [][]string{
		{"small", "large"},
		{"odd"},
		{"odd", "plain"},
		{"plain"},
		nil,
		{"small"},
		nil,
		{"large"},
		{"small", "large", "odd", "plain"},
		nil,
	})
}

// A filter text may have parameters, whose values are set with it.
func parameters(s suite) {
	s.filtered([]harness.Rule{
		{SQL: "quantity >= @least AND sys.Label = @label", Parameters: harness.Fields{"least": 100, "label": "order"}},
		{SQL: "color = @color", Parameters: harness.Fields{"color": "red"}},
	}, [][]string{{"large"}, {"small"}})
}

// A rule with an action creates its own copy with the name of the rule and the changes of the
// action; other copies and other subscriptions do not have them.
func actions(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{}, harness.Rule{
		Name: "repaint", SQL: "color = 'red'", Action: "SET color = 'green'; SET quantity = quantity + 41; SET new = 'yes'; REMOVE gone",
	})
	b := topic.subscription("b", harness.Settings{})
	sent := orders()[:2]
	sent[0].ApplicationProperties["gone"] = "soon"
	topic.publishAll(sent)
	got := a.gets(2, "small")
	want := map[string]any{"RuleName": "repaint", "color": "green", "quantity": int64(42), "new": "yes"}
	if diff := cmp.Diff(want, got[0].ApplicationProperties); diff != "" {
		s.Errorf("changed properties (-want +got)\n%s", diff)
	}
	if string(got[0].Body) != "body of small" || *got[0].Subject != "order" {
		s.Errorf("the copy has body %q and subject %q", got[0].Body, *got[0].Subject)
	}
	beside := b.gets(3, "small", "large")
	if diff := cmp.Diff(sent[0].ApplicationProperties, beside[0].ApplicationProperties); diff != "" {
		s.Errorf("properties beside (-want +got)\n%s", diff)
	}
}

// An action may set system properties of a message.
func systemActions(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{}, harness.Rule{
		Name: "label it", True: true,
		Action: "SET sys.Label = 'new label'; SET sys.To = 'there'; SET sys.ReplyTo = sys.MessageId; SET sys.CorrelationId = 'c-' + color; REMOVE sys.ContentType",
	})
	m := orders()[0]
	m.ContentType = ptr("text/plain")
	topic.publishAll([]*azservicebus.Message{m})
	r := a.receiver(2)
	for range 2 { // the changes of an action persist, and so do those of an abandon
		got := a.receiveOne(r)
		if got.Subject == nil || *got.Subject != "new label" || got.To == nil || *got.To != "there" || got.ReplyTo == nil || *got.ReplyTo != "small" ||
			got.CorrelationID == nil || *got.CorrelationID != "c-red" || got.ContentType != nil {
			s.Errorf("came with subject %v, to %v, reply-to %v, correlation %v, content type %v", got.Subject, got.To, got.ReplyTo, got.CorrelationID, got.ContentType)
		}
		if got.ApplicationProperties["RuleName"] != "label it" {
			s.Errorf("came with the properties %v", got.ApplicationProperties)
		}
		s.must("abandon", r.AbandonMessage(s.ctx, got, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tried": true}}))
	}
	peeked, err := a.receiver(3).PeekMessages(s.ctx, 1, nil)
	s.must("peek", err)
	if len(peeked) != 1 || *peeked[0].Subject != "new label" || peeked[0].ApplicationProperties["tried"] != true {
		s.Errorf("peeked %v", peeked)
	}
}

// All matching rules without an action create one copy together, each rule with an action creates its own.
func copies(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{},
		harness.Rule{Name: "all", True: true},
		harness.Rule{Name: "red", SQL: "color = 'red'"},
		harness.Rule{Name: "first", SQL: "quantity < 5", Action: "SET by = 'first'"},
		harness.Rule{Name: "second", Conditions: harness.Fields{"sys.Label": "order"}, Action: "SET by = 'second'"},
		harness.Rule{Name: "never", SQL: "quantity < 0", Action: "SET by = 'never'"},
	)
	topic.publishAll(orders()[:2])
	r := a.receiver(2)
	var got []string
	for _, m := range a.receive(r, 5) {
		rule, _ := m.ApplicationProperties["RuleName"].(string)
		by, _ := m.ApplicationProperties["by"].(string)
		if rule != by {
			s.Errorf("%s names the rule %q and was changed by %q", m.MessageID, rule, by)
		}
		got = append(got, m.MessageID+" by "+rule)
	}
	if diff := cmp.Diff([]string{"small by ", "small by first", "small by second", "large by ", "large by second"}, got); diff != "" {
		s.Errorf("copies (-want +got)\n%s", diff)
	}
	a.nothing(r)
}

// A filter that cannot be evaluated dead-letters the message of the subscription once, or counts as
// not matching, depending on the subscription. The other rules are evaluated.
func filterErrors(s suite) {
	topic := s.topic(nil)
	divides := harness.Rule{Name: "divides", SQL: "1 / (quantity - 1) = 5"}
	knows := harness.Rule{Name: "unknown", SQL: "sys.Nothing = 5 AND quantity = 1"}
	large := harness.Rule{Name: "large", SQL: "quantity > 50"}
	keeping, dropping := harness.Fields{"deadLetteringOnFilterEvaluationExceptions": true}, harness.Fields{"deadLetteringOnFilterEvaluationExceptions": false}
	keeps := topic.subscription("keeps", harness.Settings{More: keeping}, divides, large)
	drops := topic.subscription("drops", harness.Settings{More: dropping}, divides, large)
	both := topic.subscription("both", harness.Settings{More: keeping}, divides, knows, harness.Rule{Name: "small", SQL: "quantity < 50"})
	acts := topic.subscription("acts", harness.Settings{More: keeping}, harness.Rule{Name: "act", True: true, Action: "SET q = 1 / (quantity - 1)"})
	topic.publishAll(orders()[:2])
	keeps.counts(harness.Counts{Active: 1, DeadLetter: 1})
	drops.counts(harness.Counts{Active: 1})
	acts.counts(harness.Counts{Active: 1, DeadLetter: 1})
	for _, sub := range []suite{keeps, acts} {
		d := sub.receiveOne(sub.deadLetters(2))
		if d.MessageID != "small" || d.DeadLetterReason == nil || *d.DeadLetterReason != "FilterEvaluationException" ||
			d.DeadLetterErrorDescription == nil || !strings.Contains(*d.DeadLetterErrorDescription, "division") {
			s.Errorf("dead letter %s of %s, reason %v, description %v", d.MessageID, sub.queue, d.DeadLetterReason, d.DeadLetterErrorDescription)
		}
	}
	if d := ids(both.receive(both.deadLetters(3), 2)); !slices.Equal(d, []string{"small", "large"}) { // large fails on the unknown one
		s.Errorf("dead letters of two rules that fail are %v", d)
	}
	both.counts(harness.Counts{Active: 1, DeadLetter: 2})
	if m := keeps.receiveOne(keeps.receiver(3)); m.MessageID != "large" {
		s.Errorf("the other rule took %s", m.MessageID)
	}
}

// A change of the rules that has been answered applies to all later sends at any member.
func editRules(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{}, harness.Rule{Name: "one", SQL: "sys.MessageId = '1'"})
	send := func(member int, ids ...string) {
		s.Helper()
		sender := topic.sender(member)
		for _, id := range ids {
			s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &id}, nil))
		}
	}
	send(1, "1", "2")
	a.gets(2, "1")
	s.AddRule(s.T, a.queue, harness.Rule{Name: "two", SQL: "sys.MessageId = '2'"})
	send(2, "1", "2", "3")
	a.gets(3, "1", "2")
	s.DropRule(s.T, a.queue, "ONE")
	send(3, "1", "2", "3")
	a.gets(1, "2")
	s.ReplaceRule(s.T, a.queue, harness.Rule{Name: "Two", SQL: "sys.MessageId = '3'"})
	send(1, "1", "2", "3")
	a.gets(2, "3")
	if got := s.RuleNames(s.T, a.queue); len(got) != 1 || !strings.EqualFold(got[0], "two") {
		s.Errorf("the rules are %v", got)
	}
}

// An invalid rule is refused with the position and what was expected there.
func refusedRules(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	for what, c := range map[string]struct {
		rule harness.Rule
		want []string
	}{
		"no filter text":    {harness.Rule{Name: "r", SQL: "quantity > "}, []string{" 400 ", "character 12", "expected"}},
		"no such operator":  {harness.Rule{Name: "r", SQL: "quantity BETWEEN 1 AND 2"}, []string{" 400 ", "character 10"}},
		"wrong action":      {harness.Rule{Name: "r", True: true, Action: "SET color"}, []string{" 400 ", "expected"}},
		"too long":          {harness.Rule{Name: "r", SQL: "color = '" + strings.Repeat("x", 1024) + "'"}, []string{" 400 "}},
		"long name":         {harness.Rule{Name: strings.Repeat("x", 51), True: true}, []string{" 400 "}},
		"condition on time": {harness.Rule{Name: "r", Conditions: harness.Fields{"sys.EnqueuedTimeUtc": "now"}}, []string{" 400 "}},
		"twice":             {harness.Rule{Name: "$default", True: true}, []string{"conflict"}},
	} {
		err := s.TryRule(s.ctx, a.queue, c.rule)
		if err == nil {
			s.Errorf("%s: accepted", what)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				s.Errorf("%s: %v, want %q in it", what, err, want)
			}
		}
	}
	if err := s.TryRule(s.ctx, harness.SubscriptionPath(topic.queue, "nobody"), harness.Rule{Name: "r", True: true}); err == nil || !strings.Contains(err.Error(), " 404 ") {
		s.Errorf("rule of an unknown subscription: %v", err)
	}
	if diff := cmp.Diff([]string{"$Default"}, s.RuleNames(s.T, a.queue)); diff != "" {
		s.Errorf("rules after refusals (-want +got)\n%s", diff)
	}
}

// add-rule, remove-rule and enumerate-rules at the management node of a subscription
// answer with the status codes that the rule managers of the clients know.
func rulesOverAMQP(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	expect := func(what string, want int32, operation string, body map[string]any) map[string]any {
		s.Helper()
		status, answer := a.ask(2, "com.microsoft:"+operation, body)
		if status != want {
			s.Errorf("%s: status %d, want %d (%v)", what, status, want, answer)
		}
		return answer
	}
	sql := func(name, text string) map[string]any {
		return map[string]any{"rule-name": name, "rule-description": map[string]any{
			"sql-filter": map[string]any{"expression": text}, "rule-name": name,
			"sql-rule-action": map[string]any{"expression": "SET by = '" + name + "'"},
		}}
	}
	expect("add", 200, "add-rule", sql("few", "quantity < 5"))
	expect("add again", 409, "add-rule", sql("FEW", "quantity < 5"))
	expect("add what is no filter", 400, "add-rule", sql("bad", "quantity <"))
	expect("add a correlation", 200, "add-rule", map[string]any{"rule-name": "returns", "rule-description": map[string]any{
		"correlation-filter": map[string]any{"label": "return", "properties": map[string]any{"quantity": int64(7)}},
	}})
	expect("remove", 200, "remove-rule", map[string]any{"rule-name": "$Default"})
	expect("remove again", 404, "remove-rule", map[string]any{"rule-name": "$Default"})
	page := func(skip, top int32) int {
		rules, _ := expect("enumerate", 200, "enumerate-rules", map[string]any{"top": top, "skip": skip})["rules"].([]any)
		return len(rules)
	}
	if all, first, last := page(0, 100), page(0, 1), page(1, 100); all != 2 || first != 1 || last != 1 {
		s.Errorf("enumerated %d rules, by pages %d and %d, want 2", all, first, last)
	}
	expect("enumerate beyond", 204, "enumerate-rules", map[string]any{"top": int32(10), "skip": int32(2)})
	if diff := cmp.Diff([]string{"few", "returns"}, s.RuleNames(s.T, a.queue)); diff != "" {
		s.Errorf("rules (-want +got)\n%s", diff)
	}
	topic.publishAll(orders())
	got := a.gets(3, "small", "plain")
	if got[0].ApplicationProperties["by"] != "few" || got[0].ApplicationProperties["RuleName"] != "few" {
		s.Errorf("the copy has the properties %v", got[0].ApplicationProperties)
	}
	if status, _ := s.ask(1, "com.microsoft:enumerate-rules", map[string]any{"top": int32(10), "skip": int32(0)}); status/100 == 2 {
		s.Errorf("rules of a queue were enumerated: status %d", status)
	}
}

// Several hundred rules of both kinds on one subscription are listed completely, and each matches
// the messages that it names.
func manyRules(s suite) {
	const each = 100
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{}, harness.Rule{Name: "sql-0", SQL: "quantity = 0"})
	want := []string{"sql-0"}
	for i := 1; i < each; i++ {
		name := fmt.Sprintf("sql-%d", i)
		want = append(want, name)
		s.AddRule(s.T, a.queue, harness.Rule{Name: name, SQL: fmt.Sprintf("quantity = %d", i)})
	}
	for i := range each {
		name := fmt.Sprintf("correlation-%d", i)
		want = append(want, name)
		s.AddRule(s.T, a.queue, harness.Rule{Name: name, Conditions: harness.Fields{"sys.CorrelationId": fmt.Sprint(i)}})
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, s.RuleNames(s.T, a.queue)); diff != "" {
		s.Errorf("rules (-want +got)\n%s", diff)
	}
	sender := topic.sender(1)
	for i := range each + 1 {
		m := &azservicebus.Message{MessageID: ptr(fmt.Sprint(i)), TimeToLive: ptr(time.Hour)}
		if i%2 == 0 {
			m.ApplicationProperties = map[string]any{"quantity": int32(i)}
		} else {
			m.CorrelationID = ptr(fmt.Sprint(i))
		}
		s.must("send", sender.SendMessage(s.ctx, m, nil))
	}
	got := a.receive(a.receiver(3), each)
	for i, m := range got {
		if m.MessageID != fmt.Sprint(i) {
			s.Fatalf("message %d is %s", i, m.MessageID)
		}
	}
	a.nothing(a.receiver(2))
}
