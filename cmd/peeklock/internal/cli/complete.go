package cli

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
)

// complete offers the names of queues, topics or subscriptions to the shell. It offers nothing when no member
// answers.
func (c *Client) complete(plurals ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		var names []string
		for _, plural := range plurals {
			names = append(names, c.someNames(ctx, plural)...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *Client) someNames(ctx context.Context, plural string) []string {
	if plural != "subscriptions" {
		return c.pageNames(ctx, "/v1/"+plural+"?max="+strconv.Itoa(completionNames))
	}
	var names []string
	for _, topic := range c.pageNames(ctx, "/v1/topics?max="+strconv.Itoa(completionNames)) {
		if len(names) >= completionNames || ctx.Err() != nil {
			break
		}
		names = append(names, c.pageNames(ctx, "/v1/subscriptions?max="+strconv.Itoa(completionNames-len(names))+"&topic="+url.QueryEscape(topic))...)
	}
	return names
}

// pageNames returns the names on one page of any list.
func (c *Client) pageNames(ctx context.Context, path string) []string {
	type named struct {
		Name string `json:"name"`
	}
	var page struct {
		Queues        []named `json:"queues"`
		Topics        []named `json:"topics"`
		Subscriptions []named `json:"subscriptions"`
		Rules         []named `json:"rules"`
		Namespaces    []named `json:"namespaces"`
	}
	if c.Call(ctx, http.MethodGet, path, nil, &page) != nil {
		return nil
	}
	var names []string
	for _, list := range [][]named{page.Queues, page.Topics, page.Subscriptions, page.Rules, page.Namespaces} {
		for _, n := range list {
			names = append(names, n.Name)
		}
	}
	return names
}

// completeRule offers subscriptions, and then the rules of the chosen subscription.
func (c *Client) completeRule(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return c.complete("subscriptions")(cmd, args, part)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	return c.pageNames(ctx, namePath("/v1/rules/", args[0])+"?max="+strconv.Itoa(completionNames)), cobra.ShellCompDirectiveNoFileComp
}

// completeNamespace offers the names of namespaces.
func (c *Client) completeNamespace(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Parent().Name() == "namespace" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	return c.pageNames(ctx, "/v1/namespaces?max="+strconv.Itoa(completionNames)), cobra.ShellCompDirectiveNoFileComp
}

// notTopic extends the error of a missing queue with a hint if a topic of that name exists.
func (c *Client) notTopic(ctx context.Context, name string, err error) error {
	var t admin.Topic
	if IsNotFound(err) && c.Call(ctx, http.MethodGet, topicResource().path(name), nil, &t) == nil {
		return Usagef("%s is a topic and holds no messages: name one of its subscriptions, %s/Subscriptions/NAME", t.Name, t.Name)
	}
	return err
}
