package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/image"
)

// Limits of a topic.
const (
	rulesBytesMax       = 2000 * fsm.RuleBytesMax // of all rules: 2,000 of the longest, or 100,000 of 1,342 bytes
	sqlRulesMax         = 2000                    // rules that are not correlation filters
	correlationRulesMax = 100_000
)

// rule is a parsed rule of a subscription. It is immutable: images share it.
type rule struct {
	fsm.Rule
	parsed       fsm.ParsedRule
	number       uint64 // rises by one with every rule of a topic; a rule that replaces another keeps its number
	subscription *entityState
	indexedBy    int // the condition by which a correlation filter is indexed, see filter.Index
}

// order compares rules in the order in which a topic evaluates them: by subscription, then by
// number.
func (r *rule) order(s *rule) int {
	return cmp.Or(cmp.Compare(r.subscription.id, s.subscription.id), cmp.Compare(r.number, s.number))
}

// indexedRule is what the index stores with a rule: all that publishing reads of a rule that
// matches and has no action. Reading up to correlationRulesMax rules, which lie far apart in memory,
// would take most of the time.
type indexedRule struct {
	subscription *entityState
	acting       *rule // the rule, nil if it has no action
}

func (r *rule) indexed() indexedRule {
	if r.parsed.Action == nil {
		return indexedRule{subscription: r.subscription}
	}
	return indexedRule{r.subscription, r}
}

// topicState is the state of a topic about its subscriptions: derived from them except for
// lastRule.
type topicState struct {
	subscriptions []*entityState // sorted by id
	lastRule      uint64         // number of the newest rule
	// pending are the Pending messages, oldest first. Derived.
	pending []fsm.SequenceNumber
	// All rules, by kind of filter. Rules with a false filter are only counted. Correlation filters
	// are in the index under their number.
	trueRules, sqlRules []*rule // in order
	falseRules          int
	ruleBytes           int    // of all rules
	copyBytes           uint64 // of the changes of copies in all subscriptions. Derived.
	index               *filter.Index[indexedRule]
}

func newTopicState() *topicState {
	return &topicState{index: filter.NewIndex[indexedRule]()}
}

// ruleSet are the rules of a subscription.
type ruleSet struct {
	generation image.Generation // of list
	list       []*rule          // by number
	names      map[string]*rule
	byName     []string // the keys of names, sorted
	// bytes is the size of all encoded rules, memory what they take in memory.
	bytes, memory int
	// Scratch space for the message that is published: whether it matches at all, whether it matches a
	// rule without action, and the other rules that match or fail.
	matched, plain bool
	matches        []ruleMatch
}

// addName adds the name of a rule to the sorted names.
func (b *ruleSet) addName(name string) {
	if i, found := slices.BinarySearch(b.byName, name); !found {
		b.byName = slices.Insert(b.byName, i, name)
	}
}

// sortNames fills the sorted names, all at once.
func (b *ruleSet) sortNames() {
	b.byName = make([]string, len(b.list))
	for i, r := range b.list {
		b.byName[i] = filter.Fold(r.Name)
	}
	slices.Sort(b.byName)
}

// own copies the list if an image may share it.
func (b *ruleSet) own(current image.Generation) {
	if b.generation != current {
		b.list, b.generation = slices.Clone(b.list), current
	}
}

func (b *ruleSet) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(b.list, number, func(r *rule, n uint64) int { return cmp.Compare(r.number, n) })
}

// ruleList returns the list for rules with this kind of filter, nil for kinds without a list.
func (h *topicState) ruleList(kind fsm.FilterKind) *[]*rule {
	switch kind {
	case fsm.TrueFilter:
		return &h.trueRules
	case fsm.SQLFilter:
		return &h.sqlRules
	case fsm.FalseFilter, fsm.CorrelationFilter:
	}
	return nil
}

// addRule adds a rule to those that the topic evaluates.
func (h *topicState) addRule(r *rule) {
	h.ruleBytes += r.parsed.Size
	switch r.Filter.Kind {
	case fsm.FalseFilter:
		h.falseRules++
	case fsm.CorrelationFilter:
		r.indexedBy = h.index.Add(r.number, r.parsed.Correlation, r.indexedBy, r.indexed())
	case fsm.TrueFilter, fsm.SQLFilter:
		list := h.ruleList(r.Filter.Kind)
		at, _ := slices.BinarySearchFunc(*list, r, (*rule).order)
		*list = slices.Insert(*list, at, r)
	}
}

// removeRule is the opposite of addRule.
func (h *topicState) removeRule(r *rule) {
	h.ruleBytes -= r.parsed.Size
	switch r.Filter.Kind {
	case fsm.FalseFilter:
		h.falseRules--
	case fsm.CorrelationFilter:
		h.index.Remove(r.number)
	case fsm.TrueFilter, fsm.SQLFilter:
		list := h.ruleList(r.Filter.Kind)
		if at, found := slices.BinarySearchFunc(*list, r, (*rule).order); found {
			*list = slices.Delete(*list, at, at+1)
		}
	}
}

// rebuildMin is the number of rules above which removing a subscription rebuilds the index:
// removing filters one by one takes a search each among those that are alike.
const rebuildMin = 1000

// removeSubscription removes a subscription and its rules.
func (h *topicState) removeSubscription(x *entityState) {
	many := len(x.rules.list) > rebuildMin
	for _, r := range x.rules.list {
		if many && r.Filter.Kind == fsm.CorrelationFilter {
			h.ruleBytes -= r.parsed.Size
			continue
		}
		h.removeRule(r)
	}
	if many {
		h.index = filter.NewIndex[indexedRule]()
		for _, y := range h.subscriptions {
			for _, r := range y.rules.list {
				if y != x && r.Filter.Kind == fsm.CorrelationFilter {
					h.index.Add(r.number, r.parsed.Correlation, r.indexedBy, r.indexed())
				}
			}
		}
	}
	if i, found := h.subscriptionIndex(x.id); found {
		h.subscriptions = slices.Delete(h.subscriptions, i, i+1)
	}
}

// addSubscription adds a subscription to the topic.
func (h *topicState) addSubscription(x *entityState) {
	i, _ := h.subscriptionIndex(x.id)
	h.subscriptions = slices.Insert(h.subscriptions, i, x)
	for sub := range x.subs {
		x.subs[sub].ix.ShareTotal(&h.copyBytes)
	}
}

func (h *topicState) subscriptionIndex(id fsm.EntityID) (int, bool) {
	return slices.BinarySearchFunc(h.subscriptions, id, func(x *entityState, id fsm.EntityID) int { return cmp.Compare(x.id, id) })
}

// isFull reports whether the topic has reached its limits for a rule of this kind and size, which
// replaces old if that is not nil.
func (h *topicState) isFull(kind fsm.FilterKind, size int, old *rule) bool {
	correlations, others, bytes := h.index.Len(), len(h.trueRules)+len(h.sqlRules)+h.falseRules, h.ruleBytes+size
	if old != nil {
		bytes -= old.parsed.Size
	}
	switch {
	case old == nil:
	case old.Filter.Kind == fsm.CorrelationFilter:
		correlations--
	default:
		others--
	}
	if kind == fsm.CorrelationFilter {
		return correlations >= correlationRulesMax || bytes > rulesBytesMax
	}
	return others >= sqlRulesMax || bytes > rulesBytesMax
}

// subscription finds a subscription, nil if there is none.
func (q *topics) subscription(id fsm.EntityID) *entityState {
	if x := q.byID[id]; x != nil && x.kind == fsm.SubscriptionEntity {
		return x
	}
	return nil
}

// putRule adds a rule, or replaces the one with its name.
func (q *topics) putRule(c fsm.PutRule) fsm.Result {
	ready, err := fsm.ParseRule(&c.Rule)
	if err != nil {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	x := q.subscription(c.Subscription)
	if x == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if code := x.fenced(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	name := filter.Fold(c.Rule.Name)
	old := x.rules.names[name]
	switch {
	case old == nil && c.Replace:
		return fsm.Result{Code: fsm.RuleNotFound}
	case old != nil && !c.Replace:
		return fsm.Result{Code: fsm.RuleExists}
	case x.topic.topicState.isFull(c.Rule.Filter.Kind, ready.Size, old):
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	c.Rule.Created = q.times.Wall
	r := &rule{Rule: c.Rule, parsed: ready, subscription: x, indexedBy: filter.ByFewest}
	if old != nil {
		r.number = old.number
		x.topic.topicState.removeRule(old)
	} else {
		x.topic.topicState.lastRule++
		r.number = x.topic.topicState.lastRule
	}
	q.addRule(r)
	x.rules.addName(name)
	x.lastActivity = q.times.Serving
	return fsm.Result{}
}

// addRule adds a rule to its subscription, or replaces the one with its number.
func (q *topics) addRule(r *rule) {
	b := &r.subscription.rules
	b.own(*q.arena.Generation())
	b.count(r, 1)
	if i, found := b.find(r.number); found {
		b.count(b.list[i], -1)
		b.list[i] = r
	} else {
		b.list = slices.Insert(b.list, i, r)
	}
	if b.names == nil {
		b.names = map[string]*rule{}
	}
	b.names[filter.Fold(r.Name)] = r
	r.subscription.topic.topicState.addRule(r)
}

// dropRule removes a rule by name.
func (q *topics) dropRule(c fsm.DropRule) fsm.Result {
	x := q.subscription(c.Subscription)
	if x == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if code := x.fenced(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	name := filter.Fold(c.Name)
	r := x.rules.names[name]
	if r == nil {
		return fsm.Result{Code: fsm.RuleNotFound}
	}
	x.topic.topicState.removeRule(r)
	x.rules.own(*q.arena.Generation())
	i, _ := x.rules.find(r.number)
	x.rules.list = slices.Delete(x.rules.list, i, i+1)
	x.rules.count(r, -1)
	delete(x.rules.names, name)
	i, _ = slices.BinarySearch(x.rules.byName, name)
	x.rules.byName = slices.Delete(x.rules.byName, i, i+1)
	x.lastActivity = q.times.Serving
	return fsm.Result{}
}

// Rules returns up to most rules of a subscription by name, case-insensitively, without the
// first skip; false if there is no such subscription. The caller must not write to the slices in
// them.
func (q *topics) Rules(id fsm.EntityID, skip, most int) ([]fsm.Rule, bool) {
	x := q.subscription(id)
	if x == nil {
		return nil, false
	}
	names := x.rules.byName[min(max(skip, 0), len(x.rules.byName)):]
	rules := make([]fsm.Rule, min(max(most, 0), len(names)))
	for i := range rules {
		rules[i] = x.rules.names[names[i]].Rule
	}
	return rules, true
}

// defaultRule returns the rule that matches all messages.
func defaultRule() *fsm.Rule {
	return &fsm.Rule{Name: fsm.DefaultRuleName, Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}}
}

// subscribe makes a new entity a subscription of a topic, with its first rule.
func (q *topics) subscribe(x, topic *entityState, first *rule) {
	x.topic = topic
	topic.topicState.addSubscription(x)
	topic.topicState.lastRule++
	first.Created, first.number = q.times.Wall, topic.topicState.lastRule
	q.addRule(first)
	x.rules.addName(filter.Fold(first.Name))
	q.recordUse(topic)
}
