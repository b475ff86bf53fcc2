package main

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// subscriptionArg is how a subscription is written: as clients address it.
const subscriptionArg = "TOPIC/Subscriptions/NAME"

func subscriptionResource() *resource[admin.Subscription] {
	return &resource[admin.Subscription]{
		kind: fsm.SubscriptionEntity, plural: "subscriptions", argument: subscriptionArg,
		summary: func(s *admin.Subscription) (string, fsm.PartitionID) { return s.Name, s.Partition },
	}
}

func newSubscription(c *client) *cobra.Command {
	n := subscriptionResource()
	cmd := group("subscription", "Create, list, show, change and delete subscriptions of topics",
		newSubscriptionCreate(c, n), newSubscriptionUpdate(c, n), newSubscriptionList(c),
		n.newShow(c, "orders/Subscriptions/audit"), n.newDelete(c, "orders/Subscriptions/audit", "every message in it"))
	cmd.Long = `Create, list, show, change and delete subscriptions of topics. A subscription is written
` + subscriptionArg + `, as clients address it. It behaves as a queue that its topic fills: with
every message, unless it has rules ("peeklock rule") that choose.`
	return cmd
}

// wantSubscription asks for a subscription as first argument, and up to most more.
func wantSubscription(more int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1+more {
			return usagef("wrong number of arguments: %s", cmd.UseLine())
		}
		if _, _, ok := fsm.SplitSubscriptionPath(args[0]); !ok {
			return usagef("%q names no subscription: write it like %s", printable(args[0], 100), subscriptionArg)
		}
		return nil
	}
}

func newSubscriptionCreate(c *client, n *resource[admin.Subscription]) *cobra.Command {
	var s entity.Settings
	var first ruleFlags
	cmd := &cobra.Command{
		Use: "create " + subscriptionArg, Short: "Create a subscription", Args: wantSubscription(0),
		Long: `Create a subscription of a topic. It takes every message that is sent from then on,
unless a filter is given: then its first rule, called $Default, has this filter.

` + ruleHelp,
		Example: `  peeklock subscription create orders/Subscriptions/audit
  peeklock subscription create orders/Subscriptions/large --sql "size > 100" --lock-duration 1m
  peeklock subscription create orders/Subscriptions/eu --correlation region=eu --forward-to eu-orders`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := admin.SubscriptionRequest{Settings: s}
			if first.given(cmd) {
				rule, err := first.rule()
				if err != nil {
					return err
				}
				body.DefaultRule = &rule
			}
			return n.put(cmd, c, http.MethodPut, args[0], body, "created")
		},
	}
	c.settingFlags(cmd, &s, fsm.SubscriptionEntity, true)
	first.flags(cmd)
	return cmd
}

func newSubscriptionUpdate(c *client, n *resource[admin.Subscription]) *cobra.Command {
	var s entity.Settings
	cmd := &cobra.Command{
		Use: "update " + subscriptionArg, Short: "Change settings of a subscription; what is not given stays", Args: wantSubscription(0),
		Example: `  peeklock subscription update orders/Subscriptions/audit --max-delivery-count 3
  peeklock subscription update orders/Subscriptions/audit --dead-letter-on-filter-errors=false`,
		ValidArgsFunction: c.complete(n.plural),
		RunE: func(cmd *cobra.Command, args []string) error {
			return n.put(cmd, c, http.MethodPatch, args[0], s, "updated")
		},
	}
	c.settingFlags(cmd, &s, fsm.SubscriptionEntity, false)
	return cmd
}

func newSubscriptionList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list [TOPIC]", Short: "List the subscriptions of a topic, or of all, and what they hold",
		Example:           "  peeklock subscription list orders",
		Args:              atMostOne,
		ValidArgsFunction: c.complete("topics"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			list, err := c.subscriptionsOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			rows := make([][]any, len(list))
			for i, s := range list {
				rows[i] = countsRow(s.Name, s.Counts, s.Partition)
			}
			return out.rows(list, countsHeader(), rows)
		},
	}
}

// subscriptionsOf lists those of the topics, or of all when none is named.
func (c *client) subscriptionsOf(ctx context.Context, names []string) ([]admin.Subscription, error) {
	if len(names) == 0 {
		topics, err := c.topics(ctx, false)
		if err != nil {
			return nil, err
		}
		for _, t := range topics {
			names = append(names, t.Name)
		}
	}
	all := []admin.Subscription{}
	for _, topic := range names {
		list, err := c.subscriptions(ctx, topic, true)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
