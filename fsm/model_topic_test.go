package fsm_test

import (
	"slices"
	"sort"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/totals"
)

// What the model knows of topics: every copy has a body of its own, and rules are told by
// their texts.

func (m *model) isTopic(id fsm.EntityID) bool {
	q := m.queues[id]
	return q != nil && q.kind == fsm.TopicEntity
}

// remove deletes an entity, a topic with its subscriptions.
func (m *model) remove(id fsm.EntityID) {
	delete(m.queues, id)
	for other, q := range m.queues {
		if q.topic == id {
			delete(m.queues, other)
		}
	}
}

// goIdle lets an entity delete itself. Subscriptions that were idle before their topic
// have gone by themselves.
func (m *model) goIdle(id fsm.EntityID, q *modelQueue) {
	leave := func(id, topic fsm.EntityID) {
		m.gone = append(m.gone, id)
		m.under[id] = topic
		slices.Sort(m.gone)
	}
	for other, x := range m.queues {
		if x.topic == id && x.idle() != 0 && x.idle() < q.idle() {
			leave(other, id)
		}
	}
	leave(id, q.topic)
	m.remove(id)
}

// idle is when an entity deletes itself, 0 if never.
func (q *modelQueue) idle() fsm.Instant {
	if q.settings.AutoDeleteOnIdle == fsm.Forever {
		return 0
	}
	return q.active + fsm.Instant(q.settings.AutoDeleteOnIdle)
}

func (m *model) firstRule(q *modelQueue, r *fsm.Rule) {
	if q.kind != fsm.SubscriptionEntity {
		return
	}
	if r == nil {
		r = &fsm.Rule{Name: fsm.DefaultRuleName}
	}
	m.addRule(q, *r)
}

func (m *model) addRule(q *modelQueue, r fsm.Rule) {
	topic := m.queues[q.topic]
	topic.newest++
	r.Created = m.now
	q.rules, q.numbers = append(q.rules, r), append(q.numbers, topic.newest)
}

func (m *model) putRule(c fsm.PutRule) modelResult {
	q := m.queues[c.Subscription]
	if q == nil || q.kind != fsm.SubscriptionEntity {
		return modelResult{Code: fsm.EntityNotFound}
	}
	i := slices.IndexFunc(q.rules, func(r fsm.Rule) bool { return r.Name == c.Rule.Name })
	switch {
	case i < 0 && c.Replace:
		return modelResult{Code: fsm.RuleNotFound}
	case i >= 0 && !c.Replace:
		return modelResult{Code: fsm.RuleExists}
	case i < 0:
		m.addRule(q, c.Rule)
	default:
		q.rules[i] = c.Rule
		q.rules[i].Created = m.now
	}
	q.active = m.serving
	return modelResult{}
}

func (m *model) dropRule(c fsm.DropRule) modelResult {
	q := m.queues[c.Subscription]
	if q == nil || q.kind != fsm.SubscriptionEntity {
		return modelResult{Code: fsm.EntityNotFound}
	}
	i := slices.IndexFunc(q.rules, func(r fsm.Rule) bool { return r.Name == c.Name })
	if i < 0 {
		return modelResult{Code: fsm.RuleNotFound}
	}
	q.rules, q.numbers = slices.Delete(q.rules, i, i+1), slices.Delete(q.numbers, i, i+1)
	q.active = m.serving
	return modelResult{}
}

// modelRules are the filters that histories draw from, and what they say of a message.
var modelRules = []struct {
	filter fsm.RuleFilter
	takes  func(n int64, red bool) (takes bool, failure string)
}{
	{fsm.RuleFilter{}, func(int64, bool) (bool, string) { return true, "" }},
	{fsm.RuleFilter{Kind: fsm.FalseFilter}, func(int64, bool) (bool, string) { return false, "" }},
	{sqlFilter("n > 1"), func(n int64, _ bool) (bool, string) { return n > 1, "" }},
	{sqlFilter("color = 'red' AND n < 3"), func(n int64, red bool) (bool, string) { return red && n < 3, "" }},
	{sqlFilter("10 / n > 4"), func(n int64, _ bool) (bool, string) {
		if n == 0 {
			return false, "character 4: division by zero or overflow: between integers"
		}
		return 10/n > 4, ""
	}},
	{fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
		{Property: filter.Property{Name: "COLOR"}, Value: filter.Text("red")},
	}}, func(_ int64, red bool) (bool, string) { return red, "" }},
	{fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
		{Property: filter.Property{Name: "color"}, Value: filter.Text("red")}, {Property: filter.Property{Name: "n"}, Value: filter.Double(2)},
	}}, func(n int64, red bool) (bool, string) { return red && n == 2, "" }},
}

func sqlFilter(text string) fsm.RuleFilter {
	return fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: text}}
}

// The actions that histories draw from.
const (
	modelAction    = "SET n = n + 1; REMOVE color"
	failingAction  = "SET sys.Size = 1"
	failureOfModel = "character 9: property cannot be changed: SET sys.Size"
)

// publish gives a message with a number at a topic to the subscriptions.
func (m *model) publish(topic fsm.EntityID, number fsm.SequenceNumber, x *modelMessage, life fsm.Millis) {
	list, err := fsm.DecodeProperties(x.properties)
	if err != nil {
		panic(err)
	}
	n, red := int64(0), false
	for _, p := range list {
		n += p.Value.AsInt()
		red = red || p.Value.AsText() == "red"
	}
	for _, q := range m.queues {
		if q.topic != topic {
			continue
		}
		give := func(sub fsm.SubQueue, patches ...fsm.Patch) *modelMessage {
			q.last++
			q.totals.Incoming++
			y := &modelMessage{
				lock: fsm.LockID{Sequence: q.last}, state: fsm.Ready, enqueued: m.now, payload: x.payload, patches: patches, topic: number,
			}
			y.expires = m.queues[topic].end(m.now, life)
			if end := q.end(m.now, 0); end != 0 && (y.expires == 0 || end < y.expires) {
				y.expires = end
			}
			q.subs[sub] = append(q.subs[sub], y)
			return y
		}
		var changes []fsm.Patch
		plain, failure := false, ""
		for _, r := range q.rules {
			takes, failed := m.takes(r, n, red)
			switch {
			case failed == "" && takes && r.Action.Text == "":
				plain = true
			case failed == "" && takes && r.Action.Text == modelAction:
				changes = append(changes, fsm.Patch{Properties: []byte{}, Changes: []fsm.Change{
					{Property: filter.Property{Name: "n"}, Value: filter.Int(n + 1)},
					{Property: filter.Property{Name: "color"}, Remove: true},
					{Property: filter.Property{Name: "RuleName"}, Value: filter.Text(r.Name)},
				}})
			case failed == "" && takes:
				failed = failureOfModel
			}
			if failure == "" {
				failure = failed
			}
		}
		if plain {
			give(fsm.MainQueue)
		}
		for _, p := range changes {
			give(fsm.MainQueue, p)
		}
		if failure != "" && q.settings.DeadLetterOnFilterErrors {
			y := give(fsm.DeadLetterQueue, fsm.Patch{DeadLetter: true, Reason: "FilterEvaluationException", Description: failure})
			q.totals.DeadLettered[totals.FilterFailed]++
			if life := q.settings.DeadLetterTimeToLive; life != fsm.Forever {
				y.rots = (m.now + fsm.Instant(life) + 999) / 1000 * 1000
			}
		}
	}
}

func (m *model) takes(r fsm.Rule, n int64, red bool) (takes bool, failure string) {
	for i := range modelRules {
		x := &modelRules[i]
		if x.filter.Kind == r.Filter.Kind && x.filter.SQL.Text == r.Filter.SQL.Text && len(x.filter.Conditions) == len(r.Filter.Conditions) {
			return x.takes(n, red)
		}
	}
	panic("no rule of the model")
}

// pulseTopic does what is due at a topic: messages whose time has come, and the topic
// itself.
func (m *model) pulseTopic(id fsm.EntityID, q *modelQueue) {
	for {
		list := slices.Clone(q.subs[0])
		sort.SliceStable(list, func(i, j int) bool { return list[i].until < list[j].until })
		idle := q.idle()
		switch {
		case len(list) > 0 && list[0].until <= m.now && (idle == 0 || list[0].until <= m.onWall(idle)):
			q.subs[0] = slices.DeleteFunc(q.subs[0], func(x *modelMessage) bool { return x == list[0] })
			q.last++
			m.publish(id, q.last, list[0], list[0].life)
			q.active = m.serving
		case idle != 0 && idle <= m.serving:
			m.goIdle(id, q)
			return
		default:
			return
		}
	}
}

// share counts what subscriptions share with their topic.
func (m *model) share(id fsm.EntityID, c *fsm.Counts) {
	seen := map[fsm.SequenceNumber]bool{}
	for _, q := range m.queues {
		if q.topic != id {
			continue
		}
		c.Subscriptions++
		for sub := range q.subs {
			for _, x := range q.subs[sub] {
				if !seen[x.topic] {
					c.Bytes += uint64(len(x.payload))
				}
				seen[x.topic] = true
			}
		}
	}
}

// peek shows what Peek should.
func (m *model) peek(a fsm.Address) []string {
	var list []string
	if q := m.queues[a.Entity]; q != nil && q.kind != fsm.TopicEntity {
		for _, x := range q.subs[a.Sub] {
			if x.state == fsm.Deleting {
				continue
			}
			seen := m.shownOf(q, a.Sub, x)
			if seen.state == fsm.Locked && x.byNumber {
				seen.state = fsm.Deferred
			}
			list = append(list, seen.String())
		}
	}
	return list
}
