package entities

import (
	"context"
	"net/http"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/fsm"
)

// CountsOf returns the counts of a queue or a subscription.
func CountsOf(ctx context.Context, c *client.Client, name string) (*api.Counts, error) {
	if _, _, ok := fsm.SplitSubscriptionPath(name); ok {
		var s api.Subscription
		err := c.Call(ctx, http.MethodGet, subscriptionResource().path(name), nil, &s)
		return s.Counts, err
	}
	var q api.Queue
	if err := c.Call(ctx, http.MethodGet, queueResource().path(name), nil, &q); err != nil {
		return nil, NotTopic(ctx, c, name, err)
	}
	return q.Counts, nil
}

// NotTopic extends the error of a missing queue with a hint if a topic of that name exists.
func NotTopic(ctx context.Context, c *client.Client, name string, err error) error {
	var t api.Topic
	if client.IsNotFound(err) && c.Call(ctx, http.MethodGet, TopicPath(name), nil, &t) == nil {
		return cli.Usagef("%s is a topic and holds no messages: name one of its subscriptions, %s/Subscriptions/NAME", t.Name, t.Name)
	}
	return err
}
