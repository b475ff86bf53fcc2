package entities

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
)

// resource is a kind of entity on the command line; T is its type in the control API.
type resource[T any] struct {
	kind     fsm.EntityKind
	plural   string // in paths of the API
	argument string // name of the argument in the help
	contents string // what is deleted with the entity, in the help
	example  string // an example of a name
	args     cobra.PositionalArgs
	summary  func(*T) (name string, partition fsm.PartitionID)
	settings func(*T) entity.Settings
	holds    func(*T) string // what is deleted with the entity, with counts
}

func (r *resource[T]) path(name string) string { return client.NamePath("/v1/"+r.plural+"/", name) }

// put creates (PUT) or updates (PATCH) the entity that the first argument names.
func (r *resource[T]) put(i command.Invocation, method, done string, body any) error {
	var e T
	if err := i.Client.Call(i.Ctx, method, r.path(i.Args[0]), body, &e); err != nil {
		return err
	}
	if i.Out.IsTable() {
		name, partition := r.summary(&e)
		return i.Out.Note("%s %s %s on partition %d", r.kind, name, done, partition)
	}
	return i.Out.Fields(e)
}

// createVerb completes create with the settings of the kind, and returns the settings that the flags fill.
func (r *resource[T]) createVerb(v command.Verb) (command.Verb, *entity.Settings) {
	var s entity.Settings
	v.Use, v.Short, v.Args, v.CompleteFlag = "create "+r.argument, "Create a "+r.kind.String(), r.args, completeDestinations()
	v.Flags = func(cmd *cobra.Command) { settingFlags(cmd, &s, r.kind, true) }
	v.Run = func(i command.Invocation) error { return r.put(i, http.MethodPut, "created", s) }
	v.Would = func(i command.Invocation) (command.Would, error) { return r.wouldCreate(i, &s) }
	return v, &s
}

func (r *resource[T]) updateVerb(v command.Verb) command.Verb {
	var s entity.Settings
	v.Use, v.Short, v.Args = "update "+r.argument, "Change settings of a "+r.kind.String()+"; settings that are not given stay", r.args
	v.Complete, v.CompleteFlag = command.CompleteNames(r.plural), completeDestinations()
	v.Flags = func(cmd *cobra.Command) { settingFlags(cmd, &s, r.kind, false) }
	v.Run = func(i command.Invocation) error { return r.put(i, http.MethodPatch, "updated", s) }
	v.Would = func(i command.Invocation) (command.Would, error) { return r.wouldUpdate(i, &s) }
	return v
}

func (r *resource[T]) showVerb() command.Verb {
	return command.GetVerb[T](command.Verb{
		Use: "show " + r.argument, Short: "Show the settings and counts of a " + r.kind.String(), Args: cli.ArgCount(1, 1),
		Example: "  peeklock " + r.kind.String() + " show " + r.example, Complete: command.CompleteNames(r.plural),
	}, func(args []string) string { return r.path(args[0]) })
}

func (r *resource[T]) deleteVerb() command.Verb {
	return command.Confirmed(command.DeleteVerb(command.Verb{
		Use: "delete " + r.argument, Short: "Delete a " + r.kind.String() + " and " + r.contents, Args: cli.ArgCount(1, 1),
		Example: "  peeklock " + r.kind.String() + " delete " + r.example + " --yes", Complete: command.CompleteNames(r.plural), Would: r.wouldDelete,
	}, func(args []string) string { return r.path(args[0]) }, command.FirstArg, func(args []string) string { return r.kind.String() + " " + args[0] + " deleted" }),
		func(args []string) string { return "deletes " + r.kind.String() + " " + args[0] + " and " + r.contents })
}

// allPages fetches a list page by page. items returns the items of a page and the value of the parameter next for
// the following page.
func allPages[P, T any](ctx context.Context, c *client.Client, path, next string, items func(*P) ([]T, string)) ([]T, error) {
	all := []T{}
	for after := ""; ; {
		var page P
		at := path
		if after != "" {
			at += "&" + next + "=" + url.QueryEscape(after)
		}
		if err := c.Call(ctx, http.MethodGet, at, nil, &page); err != nil {
			return nil, err
		}
		some, following := items(&page)
		all = append(all, some...)
		if following == "" || following == after {
			return all, nil
		}
		after = following
	}
}

func queues(ctx context.Context, c *client.Client) ([]api.Queue, error) {
	return allPages(ctx, c, "/v1/queues?max=1000&counts=true", "after", func(p *api.QueuePage) ([]api.Queue, string) { return p.Queues, p.Next })
}

func topics(ctx context.Context, c *client.Client, counts bool) ([]api.Topic, error) {
	return allPages(ctx, c, "/v1/topics?max=1000&counts="+strconv.FormatBool(counts), "after", func(p *api.TopicPage) ([]api.Topic, string) { return p.Topics, p.Next })
}

// subscriptions lists the subscriptions of the named topics, or of all topics when none is named.
func subscriptions(ctx context.Context, c *client.Client, names []string) ([]api.Subscription, error) {
	if len(names) == 0 {
		topics, err := topics(ctx, c, false)
		if err != nil {
			return nil, err
		}
		for _, t := range topics {
			names = append(names, t.Name)
		}
	}
	all := []api.Subscription{}
	for _, topic := range names {
		list, err := allPages(ctx, c, "/v1/subscriptions?max=1000&counts=true&topic="+url.QueryEscape(topic), "after",
			func(p *api.SubscriptionPage) ([]api.Subscription, string) { return p.Subscriptions, p.Next })
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// countsHeader and countsRow return the table columns for the counts of a queue or subscription.
func countsHeader() []any {
	return []any{"name", "active", "locked", "deferred", "scheduled", "dead-letter", "transfer", "transfer-dead-letter", "size", "partition"}
}

func countsRow(name string, counts *api.Counts, partition fsm.PartitionID) []any {
	var n api.Counts
	if counts != nil {
		n = *counts
	}
	return []any{
		name, n.Active, n.Locked, n.Deferred, n.Scheduled, n.DeadLetter, n.Transfer, n.TransferDeadLetter,
		output.BytesText(n.Bytes), uint32(partition),
	}
}
