package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of a list of rules. The largest rule is 64 KiB, so that a page fits into one reply between members.
const (
	pageRulesMax    = 200
	pageRulesNormal = 100
)

// putRule is PUT /v1/rules/{subscription}?name=, which adds a rule; with replace=true it replaces the
// rule of that name, which must exist.
func (s *controlAPI) putRule(w http.ResponseWriter, r *http.Request) error {
	path, name, err := ruleName(r)
	if err != nil {
		return err
	}
	replace, err := input.Bool(r, "replace")
	if err != nil {
		return err
	}
	var asked entity.Rule
	if err := input.Decode(r, &asked, entity.RuleFields); err != nil {
		return err
	}
	if asked.Name == "" {
		asked.Name = name
	}
	if !strings.EqualFold(asked.Name, name) {
		return fmt.Errorf("%w: the path calls the rule %.60q and the body %.60q", fsm.InvalidArgument, name, asked.Name)
	}
	rule, err := asked.Parse()
	if err != nil {
		return err
	}
	if err := s.namespace(r).PutRule(r.Context(), path, rule, replace); err != nil {
		return withRuleName(path, name, err)
	}
	status := http.StatusCreated
	if replace {
		status = http.StatusOK
	}
	s.writeJSON(w, r, status, entity.DescribeRule(rule))
	return nil
}

// getRules is GET /v1/rules/{subscription}?skip=&max=, a list in the order of creation, and with
// name= one rule.
func (s *controlAPI) getRules(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Has("name") {
		return s.showRule(w, r)
	}
	path, err := input.Name(fsm.SubscriptionEntity, r)
	if err != nil {
		return err
	}
	limit, err := input.Number(r, "max", pageRulesNormal, 1, pageRulesMax)
	if err != nil {
		return err
	}
	skip, err := input.Number(r, "skip", 0, 0, 1<<31-1)
	if err != nil {
		return err
	}
	rules, err := s.namespace(r).Rules(r.Context(), path, skip, limit)
	if err != nil {
		return withEntityName(path, err)
	}
	page := api.RulePage{Rules: make([]entity.Rule, len(rules))}
	for i := range rules {
		page.Rules[i] = entity.DescribeRule(rules[i])
	}
	if len(rules) == limit {
		page.Next = skip + limit
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

// showRule is GET /v1/rules/{subscription}?name=.
func (s *controlAPI) showRule(w http.ResponseWriter, r *http.Request) error {
	path, name, err := ruleName(r)
	if err != nil {
		return err
	}
	rule, err := s.findRule(r, path, name)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, entity.DescribeRule(rule))
	return nil
}

// findRule searches the list page by page: the cluster has no query for one rule, and only people request one.
func (s *core) findRule(r *http.Request, path, name string) (fsm.Rule, error) {
	for skip := 0; ; skip += pageRulesMax {
		rules, err := s.namespace(r).Rules(r.Context(), path, skip, pageRulesMax)
		if err != nil {
			return fsm.Rule{}, withEntityName(path, err)
		}
		chargeLater(r, len(rules)/entriesPerUnit)
		for i := range rules {
			if strings.EqualFold(rules[i].Name, name) {
				return rules[i], nil
			}
		}
		if len(rules) < pageRulesMax {
			return fsm.Rule{}, withRuleName(path, name, fsm.RuleNotFound)
		}
	}
}

// deleteRule is DELETE /v1/rules/{subscription}?name=.
func (s *controlAPI) deleteRule(w http.ResponseWriter, r *http.Request) error {
	path, name, err := ruleName(r)
	if err != nil {
		return err
	}
	if err := s.namespace(r).DropRule(r.Context(), path, name); err != nil {
		return withRuleName(path, name, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ruleName is the subscription in the path and the rule in the parameter: the names of rules may contain characters
// that a path cannot, as $Default does.
func ruleName(r *http.Request) (path, name string, err error) {
	if path, err = input.Name(fsm.SubscriptionEntity, r); err != nil {
		return "", "", err
	}
	if name = r.URL.Query().Get("name"); name == "" {
		return "", "", fmt.Errorf("%w: name the rule with ?name=", fsm.InvalidArgument)
	}
	return path, name, nil
}

// withRuleName is withEntityName for errors about one rule.
func withRuleName(path, name string, err error) error {
	switch codeOf(err) { //nolint:exhaustive // the others are named by naming
	case fsm.RuleNotFound:
		return fmt.Errorf("%w: '%s' has no rule '%.60s'", fsm.RuleNotFound, path, name)
	case fsm.RuleExists:
		return fmt.Errorf("%w: '%s' has a rule '%.60s'", fsm.RuleExists, path, name)
	}
	return withEntityName(path, err)
}

// ruleTestMax bounds the rules that a rule test reads.
const ruleTestMax = 20_000

// testRules is POST /v1/rule-test/{topic}: it evaluates the rules of all subscriptions for the message in the body, which is
// not sent. Actions are not performed: their messages differ only in what the actions set.
func (s *controlAPI) testRules(w http.ResponseWriter, r *http.Request) error {
	topic, err := input.Name(fsm.TopicEntity, r)
	if err != nil {
		return err
	}
	var asked jsonmessage.Message
	if err := input.Decode(r, &asked, "the fields of a message, such as body, subject and properties"); err != nil {
		return err
	}
	sample, err := inspect.NewSample(&asked, time.Now())
	if err != nil {
		return err
	}
	if _, _, err := s.namespace(r).Entity(r.Context(), fsm.TopicEntity, topic); err != nil {
		return withEntityName(topic, err)
	}
	test := ruleTest{sample: sample, view: s.namespace(r), answer: api.RuleTest{Subscriptions: []api.RuleTestSubscription{}, Failed: []api.RuleTestFailure{}}}
	for after := ""; ; {
		subscriptions, err := test.view.Entities(r.Context(), fsm.SubscriptionEntity, topic, after, pageEntitiesMax)
		if err != nil {
			return withEntityName(topic, err)
		}
		for i := range subscriptions {
			before := test.read
			if err := test.subscription(r.Context(), subscriptions[i].Name); err != nil {
				return err
			}
			if err := chargePage(r, (test.read-before)*entriesPerUnit/testedPerUnit); err != nil {
				return err
			}
		}
		if len(subscriptions) < pageEntitiesMax {
			s.writeJSON(w, r, http.StatusOK, test.answer)
			return nil
		}
		after = subscriptions[len(subscriptions)-1].Name
	}
}

// ruleTest is a rule test in progress.
type ruleTest struct {
	sample *inspect.Sample
	view   NamespaceView
	answer api.RuleTest
	read   int // rules
}

// subscription evaluates the rules of one subscription.
func (t *ruleTest) subscription(ctx context.Context, path string) error {
	taken, plain := api.RuleTestSubscription{Name: path}, false
	for skip := 0; ; skip += pageRulesMax {
		rules, err := t.view.Rules(ctx, path, skip, pageRulesMax)
		if err != nil {
			return withEntityName(path, err)
		}
		if t.read += len(rules); t.read > ruleTestMax {
			return fmt.Errorf("%w: the topic of '%s' has more than %d rules", fsm.QuotaExceeded, path, ruleTestMax)
		}
		for i := range rules {
			takes, err := t.sample.Takes(&rules[i])
			switch {
			case err != nil:
				t.answer.Failed = append(t.answer.Failed, api.RuleTestFailure{Subscription: path, Rule: rules[i].Name, Error: err.Error()})
			case takes:
				taken.Rules = append(taken.Rules, rules[i].Name)
				if rules[i].Action.Text != "" {
					taken.Copies++
				} else if !plain {
					plain = true
					taken.Copies++
				}
			}
		}
		if len(rules) < pageRulesMax {
			break
		}
	}
	if taken.Copies > 0 {
		t.answer.Subscriptions = append(t.answer.Subscriptions, taken)
	}
	return nil
}
