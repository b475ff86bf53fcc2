package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/fsm"
)

// subscriptionArg is the form of a subscription name, the same that clients use as its address.
const subscriptionArg = "TOPIC/Subscriptions/NAME"

// EntityNouns returns the commands of entities, namespaces and keys, and import.
func EntityNouns() []noun {
	return []noun{queueNoun(), topicNoun(), subscriptionNoun(), ruleNoun(), namespaceNoun(), keyNoun(), {verbs: []verb{importVerb()}}}
}

func queueResource() *resource[admin.Queue] {
	return &resource[admin.Queue]{
		kind: fsm.QueueEntity, plural: "queues", argument: "NAME", contents: "all its messages", example: "orders", args: ArgCount(1, 1),
		summary: func(q *admin.Queue) (string, fsm.PartitionID) { return q.Name, q.Partition },
	}
}

func topicResource() *resource[admin.Topic] {
	return &resource[admin.Topic]{
		kind: fsm.TopicEntity, plural: "topics", argument: "NAME", contents: "its subscriptions with all their messages", example: "orders", args: ArgCount(1, 1),
		summary: func(t *admin.Topic) (string, fsm.PartitionID) { return t.Name, t.Partition },
	}
}

func subscriptionResource() *resource[admin.Subscription] {
	return &resource[admin.Subscription]{
		kind: fsm.SubscriptionEntity, plural: "subscriptions", argument: subscriptionArg, contents: "all its messages", example: "orders/Subscriptions/audit",
		args:    wantSubscription(0),
		summary: func(s *admin.Subscription) (string, fsm.PartitionID) { return s.Name, s.Partition },
	}
}

func queueNoun() noun {
	r := queueResource()
	create, _ := r.createVerb(verb{example: `  peeklock queue create orders
  peeklock queue create orders --lock-duration 1m --max-delivery-count 3
  peeklock queue create jobs --default-ttl 1h --dead-letter-on-expiry
  peeklock queue create once --duplicate-detection --duplicate-window 1h
  peeklock queue create eu-orders --forward-to orders --forward-dead-letters-to all-dead`})
	return noun{name: "queue", short: "Create, list, show, update and delete queues", verbs: []verb{
		create,
		r.updateVerb(verb{
			long: `Change settings of a queue while it is in use. Settings that are not given stay, and so do the locks that receivers hold.`,
			example: `  peeklock queue update orders --status ReceiveDisabled
  peeklock queue update orders --default-ttl forever --auto-delete-on-idle 1h
  peeklock queue update orders --retry-delay 1s --retry-delay-max 5m
  peeklock queue update orders --forward-to ''`,
		}),
		listVerb(verb{use: "list", short: "List queues with their message counts", example: "  peeklock queue list"},
			func(i invocation) ([]admin.Queue, error) { return queues(i.ctx, i.client) }, countsHeader(),
			func(q *admin.Queue) []any { return countsRow(q.Name, q.Counts, q.Partition) }),
		r.showVerb(), r.deleteVerb(),
	}}
}

func topicNoun() noun {
	r := topicResource()
	create, _ := r.createVerb(verb{example: `  peeklock topic create orders
  peeklock topic create orders --duplicate-detection --max-size-mb 4096`})
	return noun{name: "topic", short: "Create, list, show, update and delete topics", long: `Create, list, show, update and delete topics. Clients send messages to a topic and receive them from its subscriptions.
Each subscription gets a copy of the messages that its rules match.`, verbs: []verb{
		create,
		r.updateVerb(verb{example: "  peeklock topic update orders --status SendDisabled"}),
		listVerb(verb{use: "list", short: "List topics with their message counts", example: "  peeklock topic list"},
			func(i invocation) ([]admin.Topic, error) { return topics(i.ctx, i.client, true) },
			[]any{"name", "subscriptions", "scheduled", "size", "status", "partition"}, topicRow),
		r.showVerb(), r.deleteVerb(),
	}}
}

func topicRow(t *admin.Topic) []any {
	var n admin.TopicCounts
	if t.Counts != nil {
		n = *t.Counts
	}
	return []any{t.Name, n.Subscriptions, n.Scheduled, BytesText(n.Bytes), textOf(t.Status), uint32(t.Partition)}
}

func subscriptionNoun() noun {
	r := subscriptionResource()
	return noun{name: "subscription", short: "Create, list, show, update and delete subscriptions of topics", long: `Create, list, show, update and delete subscriptions of topics. A subscription is written
` + subscriptionArg + `, as clients address it. It behaves like a queue that its topic fills: with all messages,
or with those that match its rules ("peeklock rule").`, verbs: []verb{
		createSubscriptionVerb(r),
		r.updateVerb(verb{example: `  peeklock subscription update orders/Subscriptions/audit --max-delivery-count 3
  peeklock subscription update orders/Subscriptions/audit --dead-letter-on-filter-errors=false`}),
		listVerb(verb{
			use: "list [TOPIC]", short: "List the subscriptions of a topic, or of all topics, with their message counts",
			example: "  peeklock subscription list orders", args: ArgCount(0, 1), complete: completeNames("topics"),
		}, func(i invocation) ([]admin.Subscription, error) { return subscriptions(i.ctx, i.client, i.args) }, countsHeader(),
			func(s *admin.Subscription) []any { return countsRow(s.Name, s.Counts, s.Partition) }),
		r.showVerb(), r.deleteVerb(),
	}}
}

// createSubscriptionVerb returns create with an optional filter, which becomes the first rule.
func createSubscriptionVerb(r *resource[admin.Subscription]) verb {
	var first ruleFlags
	v, settings := r.createVerb(verb{long: `Create a subscription of a topic. It gets all messages that are sent from now on. With a filter, it gets those that
match: the filter becomes its first rule, $Default.

` + ruleHelp, example: `  peeklock subscription create orders/Subscriptions/audit
  peeklock subscription create orders/Subscriptions/large --sql "size > 100" --lock-duration 1m
  peeklock subscription create orders/Subscriptions/eu --correlation region=eu --forward-to eu-orders`})
	settingFlags := v.flags
	v.flags = func(cmd *cobra.Command) {
		settingFlags(cmd)
		first.flags(cmd)
	}
	v.run = func(i invocation) error {
		body := admin.SubscriptionRequest{Settings: *settings}
		if first.given(i.changed) {
			rule, err := first.rule()
			if err != nil {
				return err
			}
			body.DefaultRule = &rule
		}
		return r.put(i, http.MethodPut, "created", body)
	}
	return v
}

// QueuePath returns the path of a queue in the control API.
func QueuePath(name string) string { return queueResource().path(name) }

// TopicPath returns the path of a topic in the control API.
func TopicPath(name string) string { return topicResource().path(name) }

// SubscriptionPath returns the path of a subscription in the control API.
func SubscriptionPath(name string) string { return subscriptionResource().path(name) }

// wantSubscription requires a subscription as the first argument, and more arguments after it.
func wantSubscription(more int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1+more {
			return Usagef("wrong number of arguments: %s", cmd.UseLine())
		}
		if _, _, ok := fsm.SplitSubscriptionPath(args[0]); !ok {
			return Usagef("%q names no subscription: write it like %s", Printable(args[0], 100), subscriptionArg)
		}
		return nil
	}
}
