package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

func topicResource() *resource[admin.Topic] {
	return &resource[admin.Topic]{
		kind: fsm.TopicEntity, plural: "topics", argument: "NAME",
		summary: func(t *admin.Topic) (string, fsm.PartitionID) { return t.Name, t.Partition },
	}
}

func newTopic(c *client) *cobra.Command {
	n := topicResource()
	cmd := group("topic", "Create, list, show, change and delete topics",
		newTopicCreate(c, n), newTopicUpdate(c, n), newTopicList(c), n.newShow(c, "orders"),
		n.newDelete(c, "orders", "its subscriptions, with every message in them"))
	cmd.Long = `Create, list, show, change and delete topics. Messages are sent to a topic and received from
its subscriptions, each of which gets a copy of what its rules take.`
	return cmd
}

func newTopicCreate(c *client, n *resource[admin.Topic]) *cobra.Command {
	var s entity.Settings
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a topic", Args: wantArgs(1),
		Example: `  peeklock topic create orders
  peeklock topic create orders --duplicate-detection --max-size-mb 4096`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return n.put(cmd, c, http.MethodPut, args[0], s, "created")
		},
	}
	c.settingFlags(cmd, &s, fsm.TopicEntity, true)
	return cmd
}

func newTopicUpdate(c *client, n *resource[admin.Topic]) *cobra.Command {
	var s entity.Settings
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change settings of a topic; what is not given stays", Args: wantArgs(1),
		Example:           "  peeklock topic update orders --status SendDisabled",
		ValidArgsFunction: c.complete(n.plural),
		RunE: func(cmd *cobra.Command, args []string) error {
			return n.put(cmd, c, http.MethodPatch, args[0], s, "updated")
		},
	}
	c.settingFlags(cmd, &s, fsm.TopicEntity, false)
	return cmd
}

func newTopicList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List topics and what they hold", Args: noArgs,
		Example: "  peeklock topic list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			topics, err := c.topics(cmd.Context(), true)
			if err != nil {
				return err
			}
			rows := make([][]any, len(topics))
			for i, t := range topics {
				var n admin.TopicCounts
				if t.Counts != nil {
					n = *t.Counts
				}
				rows[i] = []any{t.Name, n.Subscriptions, n.Scheduled, bytesText(n.Bytes), textOf(t.Status), uint32(t.Partition)}
			}
			return out.rows(topics, []any{"name", "subscriptions", "scheduled", "size", "status", "partition"}, rows)
		},
	}
}
