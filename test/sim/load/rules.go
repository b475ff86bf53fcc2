package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// The messages of the stream with rules have a number as colour, which their id determines.
const (
	colours      = 8
	colourName   = "colour"
	markName     = "mark"     // property that actions set to the name of their rule
	ruleNameName = "RuleName" // property of a copy that an action made
	ruleMean     = 5 * time.Second
	// ruleGrace is how long after a request without an answer it may still be performed.
	ruleGrace = time.Minute
)

// ruled adds a topic with two subscriptions: one has fixed rules with filters and actions of each kind, the rules
// of the other are added and removed while messages are sent.
func (b *builder) ruled() {
	s := b.stream("ruled")
	s.immediate = true
	s.IsExact = true
	s.To = b.entity(s, fsm.TopicEntity, s.Name, nil)
	fixed := b.subscription(s, "fixed", fsm.Rule{Name: "one", Filter: colourFilter(1)})
	changing := b.subscription(s, "changing", fsm.Rule{Name: "none", Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}})
	for _, name := range []string{"low", "even"} {
		text := map[string]string{"low": "colour < 3", "even": "colour IN (0, 2, 4, 6)"}[name]
		b.rule(fixed, fsm.Rule{
			Name: name, Action: fsm.SQLText{Text: fmt.Sprintf("SET %s = '%s'", markName, name)},
			Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: text}},
		})
	}
	s.From = []judge.Source{{Name: "fixed", At: fixed}, {Name: "fixed/low", At: fixed}, {Name: "fixed/even", At: fixed}, {Name: "changing", At: changing}}
	s.prepare = func(_ *client, m *fsm.Message, number int64) {
		colour := filter.Int(number % colours)
		m.Properties = fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Scope: filter.User, Name: colourName}, Value: colour}})
	}
	rules := new(judge.Rules)
	s.Expect = func(m *judge.Sent, source string) judge.Expectation { return expectByRules(rules, m, source) }
	for i := range 2 {
		s.work = append(s.work, func(c *client) { b.load.changeRules(c, s, rules, changing, i) })
	}
}

// colourFilter is a correlation filter for a colour.
func colourFilter(colour int64) fsm.RuleFilter {
	return fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
		{Property: filter.Property{Scope: filter.User, Name: colourName}, Value: filter.Int(colour)},
	}}
}

// expectByRules says whether a message matches a rule. rules are those of the subscription whose rules change.
func expectByRules(rules *judge.Rules, m *judge.Sent, source string) judge.Expectation {
	colour := numberOf(m.ID) % colours
	isMatch := false
	switch source {
	case "fixed":
		isMatch = colour == 1
	case "fixed/low":
		isMatch = colour < 3
	case "fixed/even":
		isMatch = colour%2 == 0
	case "changing":
		return rules.Expect(m, colour)
	}
	if isMatch {
		return judge.Must
	}
	return judge.Never
}

// changeRules adds and removes rules until sending ends. Each rule has a name of its own: a request without an
// answer that is performed late concerns no later rule.
func (l *Load) changeRules(c *client, s *stream, rules *judge.Rules, at fsm.EntityRef, number int) {
	for i := 0; c.think(l.sending, ruleMean); i++ {
		colour := c.rand.Int64N(colours)
		life := rules.Add(colour)
		rule := fsm.Rule{Name: fmt.Sprintf("r%d-%d", number, i), Filter: colourFilter(colour)}
		if i%2 == 1 {
			text := colourName + " = " + strconv.FormatInt(colour, 10)
			rule.Filter = fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: text}}
		}
		isKnown := l.addRule(c, s, at, rule, life)
		c.think(l.sending, 2*ruleMean)
		life.Drops()
		l.dropRule(c, s, at, rule.Name, life, isKnown)
	}
}

// addRule adds a rule. It returns false when it may still be added later.
func (l *Load) addRule(c *client, s *stream, at fsm.EntityRef, rule fsm.Rule, life *judge.Rule) bool {
	p := c.process(l.sending)
	if p == nil {
		return false
	}
	err, heard := await(p, func(ctx context.Context) error { return p.Node.Router().AddRule(ctx, at, rule) })
	switch {
	case heard && err == nil:
		l.operations.Add(1)
		life.Added()
		return true
	case heard && errors.Is(err, fsm.ServerBusy):
		return true
	case heard && (errors.Is(err, fsm.RuleExists) || errors.Is(err, fsm.EntityNotFound) || errors.Is(err, fsm.InvalidArgument)):
		s.Find(fmt.Sprintf("rule %s, a new one, could not be added: %v", rule.Name, err))
	}
	return false
}

// dropRule removes a rule until it is certainly gone.
func (l *Load) dropRule(c *client, s *stream, at fsm.EntityRef, name string, life *judge.Rule, isKnown bool) {
	if !isKnown && !c.pause(l.sending, ruleGrace) {
		return
	}
	for first := true; ; first = false {
		p := c.process(l.sending)
		if p == nil {
			return
		}
		err, heard := await(p, func(ctx context.Context) error { return p.Node.Router().RemoveRule(ctx, at, name) })
		isAbsent := heard && errors.Is(err, fsm.RuleNotFound)
		if heard && err == nil || isAbsent {
			life.Dropped()
		}
		switch {
		case isAbsent && first && life.WasAdded():
			s.Find(fmt.Sprintf("rule %s was added and could not be removed: %v", name, err))
			return
		case heard && err == nil:
			l.operations.Add(1)
			return
		case isAbsent || !c.think(l.sending, reconnectAfter):
			return
		}
	}
}

// subscription creates a subscription of the topic of a stream with a first rule.
func (b *builder) subscription(s *stream, name string, first fsm.Rule) fsm.EntityRef {
	at := b.entity(s, fsm.SubscriptionEntity, fsm.SubscriptionPath(s.Name, name), nil)
	b.rule(at, first)
	if b.err == nil {
		b.err = b.process.Node.Router().RemoveRule(b.ctx, at, fsm.DefaultRuleName)
	}
	return at
}

func (b *builder) rule(at fsm.EntityRef, rule fsm.Rule) {
	if b.err == nil {
		b.err = b.process.Node.Router().AddRule(b.ctx, at, rule)
	}
}

// copyOf returns the name of the source of a copy: with the name of the rule whose action made it.
func copyOf(from judge.Source, d *fsm.Delivery) string {
	patches, err := fsm.DecodePatches(d.Patches)
	if err != nil {
		return from.Name + "/" + err.Error()
	}
	var rule, mark string
	for i := range patches {
		for j := range patches[i].Changes {
			switch change := &patches[i].Changes[j]; change.Property.Name {
			case ruleNameName:
				rule = change.Value.AsText()
			case markName:
				mark = change.Value.AsText()
			}
		}
	}
	switch {
	case rule != mark:
		return fmt.Sprintf("%s/%s, marked by %s", from.Name, rule, mark)
	case rule != "":
		return from.Name + "/" + rule
	}
	return from.Name
}
