package declare

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/fsm"
)

// pageMax is the number of entities of one request.
const pageMax = 100

// readState reads the entities of the namespace as a document with every setting.
func readState(ctx context.Context, c *client.Client) (*Document, error) {
	var err error
	d := new(Document)
	get := func(path string, into any) error { return c.Call(ctx, http.MethodGet, path, nil, into) }
	keys := func(of string) (list []Key, err error) {
		var page api.AccessPage
		path := "/v1/access"
		if of != "" {
			path = client.NamePath("/v1/access/", of)
		}
		if err := get(path, &page); err != nil {
			return nil, fmt.Errorf("read the keys of %q: %w", of, err)
		}
		for _, r := range page.Rules {
			list = append(list, Key{Name: r.Name, Rights: r.Rights})
		}
		return list, nil
	}
	if d.Keys, err = keys(""); err != nil {
		return nil, err
	}
	for after, more := "", true; more; {
		var page api.QueuePage
		if err := get(fmt.Sprintf("/v1/queues?max=%d&after=%s", pageMax, url.QueryEscape(after)), &page); err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		for i := range page.Queues {
			q := Queue{Name: page.Queues[i].Name, Settings: page.Queues[i].Settings}
			if q.Keys, err = keys(q.Name); err != nil {
				return nil, err
			}
			d.Queues = append(d.Queues, q)
		}
		after, more = page.Next, page.Next != ""
	}
	for after, more := "", true; more; {
		var page api.TopicPage
		if err := get(fmt.Sprintf("/v1/topics?max=%d&after=%s", pageMax, url.QueryEscape(after)), &page); err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		for i := range page.Topics {
			t := Topic{Name: page.Topics[i].Name, Settings: page.Topics[i].Settings}
			if t.Keys, err = keys(t.Name); err != nil {
				return nil, err
			}
			if t.Subscriptions, err = readSubscriptions(t.Name, get); err != nil {
				return nil, err
			}
			d.Topics = append(d.Topics, t)
		}
		after, more = page.Next, page.Next != ""
	}
	return d, nil
}

func readSubscriptions(topic string, get func(string, any) error) (list []Subscription, err error) {
	for after, more := "", true; more; {
		var page api.SubscriptionPage
		if err := get(fmt.Sprintf("/v1/subscriptions?topic=%s&max=%d&after=%s", url.QueryEscape(topic), pageMax, url.QueryEscape(after)), &page); err != nil {
			return nil, fmt.Errorf("list the subscriptions of %s: %w", topic, err)
		}
		for i := range page.Subscriptions {
			s := Subscription{Name: page.Subscriptions[i].SubscriptionName, Settings: page.Subscriptions[i].Settings, Rules: []entity.Rule{}}
			for skip, more := 0, true; more; {
				var rules api.RulePage
				path := client.NamePath("/v1/rules/", fsm.SubscriptionPath(topic, s.Name))
				if err := get(fmt.Sprintf("%s?skip=%d&max=%d", path, skip, pageMax), &rules); err != nil {
					return nil, fmt.Errorf("list the rules of %s of %s: %w", s.Name, topic, err)
				}
				for _, r := range rules.Rules {
					r.Created = nil
					s.Rules = append(s.Rules, r)
				}
				skip, more = rules.Next, rules.Next != 0
			}
			list = append(list, s)
		}
		after, more = page.Next, page.Next != ""
	}
	return list, nil
}
