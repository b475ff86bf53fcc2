package fsm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// publishing makes the commands of topics, subscriptions and rules.
//
//	topic          makes a topic, with the settings of queue
//	subscription   makes a subscription of topic=N, with the rule of its only line if there is one
//	rule           adds the rule of its line, or puts it in the place of that of its name (replace)
//	drop-rule      removes the rule named in its line
//
// A rule is "name true", "name false", "name sql text" or "name match property=value ...",
// and may end in " then action".
func (s *scenario) publishing(d *datadriven.TestData) fsm.Command {
	at := address(d).Entity
	switch d.Cmd {
	case "topic":
		return fsm.PutEntity{Entity: at, Version: number(d, "version", 1), Settings: settings(s.t, d), Kind: fsm.TopicEntity}
	case "subscription":
		c := fsm.PutEntity{Entity: at, Version: number(d, "version", 1), Settings: settings(s.t, d), Kind: fsm.SubscriptionEntity}
		c.Topic = fsm.EntityID(number(d, "topic", 1))
		if d.Input != "" {
			r := ruleOf(s.t, d.Input)
			c.Rule = &r
		}
		return c
	case "rule":
		return fsm.PutRule{Subscription: at, Rule: ruleOf(s.t, d.Input), Replace: d.HasArg("replace")}
	case "drop-rule":
		return fsm.DropRule{Subscription: at, Name: d.Input}
	}
	return nil
}

func ruleOf(t testing.TB, line string) fsm.Rule {
	line, action, _ := strings.Cut(line, " then ")
	words := strings.SplitN(line, " ", 3)
	rest := ""
	if len(words) == 3 {
		rest = words[2]
	}
	r := fsm.Rule{Name: words[0], Action: fsm.SQLText{Text: action}}
	switch words[1] {
	case "true":
	case "false":
		r.Filter.Kind = fsm.FalseFilter
	case "sql":
		r.Filter.Kind, r.Filter.SQL.Text = fsm.SQLFilter, rest
	case "match":
		r.Filter.Kind = fsm.CorrelationFilter
		for _, p := range properties(t, rest) {
			r.Filter.Conditions = append(r.Filter.Conditions, filter.Condition{Property: p.Name, Value: p.Value})
		}
	default:
		t.Fatalf("no rule: %s", line)
	}
	return r
}

// properties reads "name=value ...": numbers, decimals, true, false, null and texts.
func properties(t testing.TB, text string) []fsm.Property {
	var list []fsm.Property
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		p := fsm.Property{Name: filter.Property{Name: name}, Value: filter.Text(value)}
		if system, ok := strings.CutPrefix(name, "sys."); ok {
			p.Name = filter.Property{Name: system, Scope: filter.System}
		}
		if i, err := strconv.ParseInt(value, 10, 64); err == nil {
			p.Value = filter.Int(i)
		} else if f, err := strconv.ParseFloat(value, 64); err == nil {
			p.Value = filter.Double(f)
		} else if value == "true" || value == "false" {
			p.Value = filter.Bool(value == "true")
		} else if value == "null" {
			p.Value = filter.Value{}
		}
		list = append(list, p)
	}
	if len(list) == 0 && text != "" {
		t.Fatalf("no properties: %s", text)
	}
	return list
}

func propertiesOf(t testing.TB, text string) []byte {
	return fsm.AppendProperties(nil, properties(t, text))
}

// changes shows what an action did.
func changes(list []fsm.Change) string {
	out := ""
	for _, c := range list {
		if c.Remove {
			out += fmt.Sprintf(" remove %v", c.Property)
			continue
		}
		text, _ := c.Value.MarshalText()
		out += fmt.Sprintf(" set %v = %s", c.Property, text)
	}
	return out
}

// rules lists the rules of a subscription.
func (s *scenario) rules(d *datadriven.TestData) string {
	rules, ok := s.q.Rules(address(d).Entity, int(number(d, "skip", 0)), int(number(d, "max", 100)))
	if !ok {
		return "not found\n"
	}
	out := ""
	for _, r := range rules {
		out += fmt.Sprintf("%s kind %d", r.Name, r.Filter.Kind)
		if r.Filter.SQL.Text != "" {
			out += " when " + r.Filter.SQL.Text
		}
		for _, c := range r.Filter.Conditions {
			text, _ := c.Value.MarshalText()
			out += fmt.Sprintf(" %v = %s", c.Property, text)
		}
		if r.Action.Text != "" {
			out += " then " + r.Action.Text
		}
		out += ", created " + at2s(r.Created) + "\n"
	}
	return out
}
