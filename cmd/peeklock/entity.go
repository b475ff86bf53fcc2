package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/fsm"
)

// resource is a kind of entity on the command line; T is how the API shows one.
type resource[T any] struct {
	kind     fsm.EntityKind
	plural   string // in the path of the API
	argument string // what the help calls its name
	summary  func(*T) (name string, partition fsm.PartitionID)
}

func (n *resource[T]) path(name string) string { return namePath("/v1/"+n.plural+"/", name) }

// put creates or updates.
func (n *resource[T]) put(cmd *cobra.Command, c *client, method, name string, body any, done string) error {
	out, err := c.output()
	if err != nil {
		return err
	}
	var e T
	if err := c.call(cmd.Context(), method, n.path(name), body, &e); err != nil {
		return err
	}
	if out.isTable() {
		shown, partition := n.summary(&e)
		return out.note("%s %s %s on partition %d", n.kind, shown, done, partition)
	}
	return out.fields(e)
}

func (n *resource[T]) newShow(c *client, example string) *cobra.Command {
	return &cobra.Command{
		Use: "show " + n.argument, Short: fmt.Sprintf("Show settings and counts of a %s", n.kind), Args: wantArgs(1),
		Example:           "  peeklock " + n.kind.String() + " show " + example,
		ValidArgsFunction: c.complete(n.plural),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			var e T
			if err := c.call(cmd.Context(), http.MethodGet, n.path(args[0]), nil, &e); err != nil {
				return err
			}
			return out.fields(e)
		},
	}
}

func (n *resource[T]) newDelete(c *client, example, what string) *cobra.Command {
	return &cobra.Command{
		Use: "delete " + n.argument, Short: fmt.Sprintf("Delete a %s and %s", n.kind, what), Args: wantArgs(1),
		Example:           "  peeklock " + n.kind.String() + " delete " + example,
		ValidArgsFunction: c.complete(n.plural),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodDelete, n.path(args[0]), nil, nil); err != nil {
				return err
			}
			if out.isTable() {
				return out.note("%s %s deleted", n.kind, args[0])
			}
			return out.data(deleted{Name: args[0], Deleted: true})
		},
	}
}

// deleted is the answer of queue delete and its like.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// allPages walks a list to its end. take gives the items of a page and where the next one
// begins, which is the parameter next.
func allPages[P, T any](ctx context.Context, c *client, path, next string, take func(*P) ([]T, string)) ([]T, error) {
	all := []T{}
	for after := ""; ; {
		var page P
		at := path
		if after != "" {
			at += "&" + next + "=" + url.QueryEscape(after)
		}
		if err := c.call(ctx, http.MethodGet, at, nil, &page); err != nil {
			return nil, err
		}
		items, following := take(&page)
		all = append(all, items...)
		if following == "" || following == after {
			return all, nil
		}
		after = following
	}
}

func (c *client) queues(ctx context.Context, counts bool) ([]admin.Queue, error) {
	return allPages(ctx, c, "/v1/queues?max=1000&counts="+strconv.FormatBool(counts), "after", func(p *admin.QueuePage) ([]admin.Queue, string) { return p.Queues, p.Next })
}

func (c *client) topics(ctx context.Context, counts bool) ([]admin.Topic, error) {
	return allPages(ctx, c, "/v1/topics?max=1000&counts="+strconv.FormatBool(counts), "after", func(p *admin.TopicPage) ([]admin.Topic, string) { return p.Topics, p.Next })
}

func (c *client) subscriptions(ctx context.Context, topic string, counts bool) ([]admin.Subscription, error) {
	path := "/v1/subscriptions?max=1000&counts=" + strconv.FormatBool(counts) + "&topic=" + url.QueryEscape(topic)
	return allPages(ctx, c, path, "after", func(p *admin.SubscriptionPage) ([]admin.Subscription, string) { return p.Subscriptions, p.Next })
}

// countsHeader and countsRow lay the counts of a queue or subscription out.
func countsHeader() []any {
	return []any{"name", "active", "locked", "deferred", "scheduled", "dead-letter", "transfer", "transfer-dead-letter", "size", "partition"}
}

func countsRow(name string, counts *admin.Counts, partition fsm.PartitionID) []any {
	var n admin.Counts
	if counts != nil {
		n = *counts
	}
	return []any{
		name, n.Active, n.Locked, n.Deferred, n.Scheduled, n.DeadLetter, n.Transfer, n.TransferDeadLetter,
		bytesText(n.Bytes), uint32(partition),
	}
}
