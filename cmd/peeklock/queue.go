package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

func queueResource() *resource[admin.Queue] {
	return &resource[admin.Queue]{
		kind: fsm.QueueEntity, plural: "queues", argument: "NAME",
		summary: func(q *admin.Queue) (string, fsm.PartitionID) { return q.Name, q.Partition },
	}
}

func newQueue(c *client) *cobra.Command {
	n := queueResource()
	return group("queue", "Create, list, show, change and delete queues",
		newQueueCreate(c, n), newQueueUpdate(c, n), newQueueList(c), n.newShow(c, "orders"), n.newDelete(c, "orders", "every message in it"))
}

func newQueueCreate(c *client, n *resource[admin.Queue]) *cobra.Command {
	var s entity.Settings
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a queue", Args: wantArgs(1),
		Example: `  peeklock queue create orders
  peeklock queue create orders --lock-duration 1m --max-delivery-count 3
  peeklock queue create jobs --default-ttl 1h --dead-letter-on-expiry
  peeklock queue create once --duplicate-detection --duplicate-window 1h
  peeklock queue create eu-orders --forward-to orders --forward-dead-letters-to all-dead`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return n.put(cmd, c, http.MethodPut, args[0], s, "created")
		},
	}
	c.settingFlags(cmd, &s, fsm.QueueEntity, true)
	return cmd
}

func newQueueUpdate(c *client, n *resource[admin.Queue]) *cobra.Command {
	var s entity.Settings
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change settings of a queue; what is not given stays", Args: wantArgs(1),
		Long: `Change settings of a queue while it is in use. What is not given stays, and so do
the locks that receivers hold.`,
		Example: `  peeklock queue update orders --status ReceiveDisabled
  peeklock queue update orders --default-ttl forever --auto-delete-on-idle 1h
  peeklock queue update orders --retry-delay 1s --retry-delay-max 5m
  peeklock queue update orders --forward-to ''`,
		ValidArgsFunction: c.complete(n.plural),
		RunE: func(cmd *cobra.Command, args []string) error {
			return n.put(cmd, c, http.MethodPatch, args[0], s, "updated")
		},
	}
	c.settingFlags(cmd, &s, fsm.QueueEntity, false)
	return cmd
}

func newQueueList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List queues and what they hold", Args: noArgs,
		Example: "  peeklock queue list",
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
				rows[i] = countsRow(q.Name, q.Counts, q.Partition)
			}
			return out.rows(queues, countsHeader(), rows)
		},
	}
}

// sinceText is how long ago, as people read it.
func sinceText(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
