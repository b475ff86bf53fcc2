package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// Rule is a rule of a subscription. One of True, False, SQL and Conditions is its filter.
type Rule struct {
	Name       string
	True       bool
	False      bool
	SQL        string
	Parameters Fields // of SQL, by name without @
	Conditions Fields // of a correlation filter: "sys.Label" and its like, or application properties
	Action     string
}

// MarshalJSON is the rule as the control API reads it.
func (r Rule) MarshalJSON() ([]byte, error) {
	filter := Fields{}
	switch {
	case r.True:
		filter["kind"] = "true"
	case r.False:
		filter["kind"] = "false"
	case r.Conditions != nil:
		filter["kind"], filter["conditions"] = "correlation", r.Conditions
	default:
		filter["kind"], filter["expression"] = "sql", r.SQL
		if r.Parameters != nil {
			filter["parameters"] = r.Parameters
		}
	}
	rule := Fields{"name": r.Name, "filter": filter}
	if r.Action != "" {
		rule["action"] = Fields{"expression": r.Action}
	}
	return json.Marshal(rule)
}

// rulesPage is how many rules one request lists; small, so that tests see pages.
const rulesPage = 100

func rulesURL(subscription string, parameters url.Values) string {
	topic, name, _ := SplitSubscriptionPath(subscription)
	return "/v1/rules/" + url.PathEscape(topic) + subscriptionWord + url.PathEscape(name) + "?" + parameters.Encode()
}

// TryRule adds a rule to a subscription, named by its path, through the first running
// member, and returns the error of the member, if any.
func (c *Cluster) TryRule(ctx context.Context, subscription string, r Rule) error {
	return c.Running()[0].PutRule(ctx, subscription, r, false)
}

// PutRule adds a rule to a subscription through a member, or replaces the one of its name.
// May be called from any goroutine.
func (m *Member) PutRule(ctx context.Context, subscription string, r Rule, replace bool) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	parameters := url.Values{"name": {r.Name}}
	if replace {
		parameters.Set("replace", "true")
	}
	_, err = m.request(ctx, http.MethodPut, rulesURL(subscription, parameters), bytes.NewReader(body))
	return err
}

// AddRule adds a rule and fails the test when it cannot.
func (c *Cluster) AddRule(t testing.TB, subscription string, r Rule) {
	t.Helper()
	var before error
	Eventually(t, convergeWithin, "rule "+r.Name, func(ctx context.Context) error {
		err := c.TryRule(ctx, subscription, r)
		if before != nil && errors.Is(err, errConflict) {
			return nil // the try before was done, and only its answer was lost
		}
		before = err
		return err
	})
}

// ReplaceRule replaces the rule of the same name.
func (c *Cluster) ReplaceRule(t testing.TB, subscription string, r Rule) {
	t.Helper()
	kit.OK(t, c.Running()[0].PutRule(t.Context(), subscription, r, true))
}

// DropRule removes a rule by its name.
func (c *Cluster) DropRule(t testing.TB, subscription, name string) {
	t.Helper()
	path := rulesURL(subscription, url.Values{"name": {name}})
	kit.Must(c.Running()[0].request(t.Context(), http.MethodDelete, path, nil))(t)
}

// RuleNames lists the names of the rules of a subscription, page by page, in the order in which the control API lists them.
func (c *Cluster) RuleNames(t testing.TB, subscription string) []string {
	t.Helper()
	var names []string
	for skip := 0; ; {
		var page struct {
			Rules []struct {
				Name string `json:"name"`
			} `json:"rules"`
			Next int `json:"next"`
		}
		body, err := c.Running()[0].get(t.Context(), rulesURL(subscription, url.Values{"skip": {fmt.Sprint(skip)}, "max": {fmt.Sprint(rulesPage)}}))
		if err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Rules {
			names = append(names, r.Name)
		}
		if skip = page.Next; skip == 0 {
			return names
		}
	}
}
