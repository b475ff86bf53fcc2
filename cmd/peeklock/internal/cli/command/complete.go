package command

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
)

// Limits of completion.
const (
	CompletionNames = 200 // names offered to the shell
	completionTime  = 2 * time.Second
)

// Completer returns what the shell offers for the next argument after args. It returns nothing when no member answers.
type Completer func(ctx context.Context, c *client.Client, args []string) []string

// cobraFunc returns the completer as cobra calls it.
func (complete Completer) cobraFunc(c *client.Client) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		return complete(ctx, c, args), cobra.ShellCompDirectiveNoFileComp
	}
}

// registerFlagCompletion offers values of a flag; the completer gets no arguments.
func registerFlagCompletion(cmd *cobra.Command, c *client.Client, flag string, complete Completer) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, part string) ([]string, cobra.ShellCompDirective) {
		return complete.cobraFunc(c)(cmd, nil, part)
	})
}

// CompleteNames offers the names of queues, topics or subscriptions for the first argument.
func CompleteNames(plurals ...string) Completer {
	return func(ctx context.Context, c *client.Client, args []string) (names []string) {
		if len(args) > 0 {
			return nil
		}
		for _, plural := range plurals {
			names = append(names, someNames(ctx, c, plural)...)
		}
		return names
	}
}

func someNames(ctx context.Context, c *client.Client, plural string) []string {
	if plural != "subscriptions" {
		return PageNames(ctx, c, "/v1/"+plural+"?max="+strconv.Itoa(CompletionNames))
	}
	var names []string
	for _, topic := range PageNames(ctx, c, "/v1/topics?max="+strconv.Itoa(CompletionNames)) {
		if len(names) >= CompletionNames || ctx.Err() != nil {
			break
		}
		names = append(names, PageNames(ctx, c, "/v1/subscriptions?max="+strconv.Itoa(CompletionNames-len(names))+"&topic="+url.QueryEscape(topic))...)
	}
	return names
}

// PageNames returns the names on one page of any list.
func PageNames(ctx context.Context, c *client.Client, path string) (names []string) {
	var page map[string]any
	if c.Call(ctx, http.MethodGet, path, nil, &page) != nil {
		return nil
	}
	for _, list := range page { // one of the values is a list
		objects, _ := list.([]any)
		for _, object := range objects {
			fields, _ := object.(map[string]any)
			if name, ok := fields["name"].(string); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// LocalNames offers names that are on this machine.
func LocalNames(names func(args []string, c *client.Client) []string) Completer {
	return func(_ context.Context, c *client.Client, args []string) []string { return names(args, c) }
}

// CompleteNamespace offers the names of namespaces for the first argument.
func CompleteNamespace(ctx context.Context, c *client.Client, args []string) []string {
	if len(args) > 0 {
		return nil
	}
	return PageNames(ctx, c, "/v1/namespaces?max="+strconv.Itoa(CompletionNames))
}
