package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
)

func newQueue(c *client) *cobra.Command {
	return group("queue", "Create, list, show, change and delete queues",
		newQueueCreate(c), newQueueUpdate(c), newQueueList(c), newQueueShow(c), newQueueDelete(c))
}

func newQueueCreate(c *client) *cobra.Command {
	var s queueSettings
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a queue", Args: wantArgs(1),
		Example: `  peeklock queue create orders
  peeklock queue create orders --lock-duration 1m --max-delivery-count 3
  peeklock queue create jobs --default-ttl 1h --dead-letter-on-expiry
  peeklock queue create once --duplicate-detection --duplicate-window 1h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.putQueue(cmd, &s, http.MethodPut, args[0], "created")
		},
	}
	s.flags(cmd)
	s.creationFlags(cmd)
	return cmd
}

func newQueueUpdate(c *client) *cobra.Command {
	var s queueSettings
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change settings of a queue; what is not given stays", Args: wantArgs(1),
		Long: `Change settings of a queue while it is in use. What is not given stays, and so do
the locks that receivers hold.`,
		Example: `  peeklock queue update orders --status ReceiveDisabled
  peeklock queue update orders --default-ttl forever --auto-delete-on-idle 1h
  peeklock queue update orders --retry-delay 1s --retry-delay-max 5m`,
		ValidArgsFunction: c.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.putQueue(cmd, &s, http.MethodPatch, args[0], "updated")
		},
	}
	s.flags(cmd)
	return cmd
}

func (c *client) putQueue(cmd *cobra.Command, s *queueSettings, method, name, done string) error {
	out, err := c.output()
	if err != nil {
		return err
	}
	var q admin.Queue
	if err := c.call(cmd.Context(), method, queuePath(name), s.body(cmd), &q); err != nil {
		return err
	}
	if out.people() {
		return out.note("queue %s %s on partition %d", q.Name, done, q.Partition)
	}
	return out.fields(q)
}

func newQueueList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List queues and what they hold", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			queues, err := c.queues(cmd.Context(), true)
			if err != nil {
				return err
			}
			rows := make([][]any, len(queues))
			for i, q := range queues {
				var n admin.Counts
				if q.Counts != nil {
					n = *q.Counts
				}
				rows[i] = []any{q.Name, n.Active, n.Locked, n.Deferred, n.Scheduled, n.DeadLetter, bytesText(n.Bytes), uint32(q.Partition)}
			}
			return out.rows(queues, []any{"name", "active", "locked", "deferred", "scheduled", "dead-letter", "size", "partition"}, rows)
		},
	}
}

func newQueueShow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show settings and counts of a queue", Args: wantArgs(1),
		ValidArgsFunction: c.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			var q admin.Queue
			if err := c.call(cmd.Context(), http.MethodGet, queuePath(args[0]), nil, &q); err != nil {
				return err
			}
			return out.fields(q)
		},
	}
}

func newQueueDelete(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a queue and every message in it", Args: wantArgs(1),
		ValidArgsFunction: c.completeQueue,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodDelete, queuePath(args[0]), nil, nil); err != nil {
				return err
			}
			if out.people() {
				return out.note("queue %s deleted", args[0])
			}
			return out.data(deleted{Name: args[0], Deleted: true})
		},
	}
}

// deleted is the answer of queue delete.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// sinceText is how long ago, as people read it.
func sinceText(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
