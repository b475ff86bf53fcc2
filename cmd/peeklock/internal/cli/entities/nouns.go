package entities

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
)

// SubscriptionArg is the form of a subscription name, the same that clients use as its address.
const SubscriptionArg = "TOPIC/Subscriptions/NAME"

// Nouns returns the commands of entities, namespaces and keys, and import. fromAzure does import --from-azure.
func Nouns(fromAzure func(i command.Invocation, connection string, dryRun bool) error) []command.Noun {
	return []command.Noun{queueNoun(), topicNoun(), subscriptionNoun(), ruleNoun(), namespaceNoun(), keyNoun(), {Verbs: []command.Verb{importVerb(fromAzure)}}}
}

func queueResource() *resource[api.Queue] {
	return &resource[api.Queue]{
		kind: fsm.QueueEntity, plural: "queues", argument: "NAME", contents: "all its messages", example: "orders", args: cli.ArgCount(1, 1),
		summary:  func(q *api.Queue) (string, fsm.PartitionID) { return q.Name, q.Partition },
		settings: func(q *api.Queue) entity.Settings { return q.Settings },
		holds:    func(q *api.Queue) string { return heldText(q.Counts) },
	}
}

func topicResource() *resource[api.Topic] {
	return &resource[api.Topic]{
		kind: fsm.TopicEntity, plural: "topics", argument: "NAME", contents: "its subscriptions with all their messages", example: "orders", args: cli.ArgCount(1, 1),
		summary:  func(t *api.Topic) (string, fsm.PartitionID) { return t.Name, t.Partition },
		settings: func(t *api.Topic) entity.Settings { return t.Settings },
		holds:    func(t *api.Topic) string { return heldByTopic(t.Counts) },
	}
}

func subscriptionResource() *resource[api.Subscription] {
	return &resource[api.Subscription]{
		kind: fsm.SubscriptionEntity, plural: "subscriptions", argument: SubscriptionArg, contents: "all its messages", example: "orders/Subscriptions/audit",
		args:     wantSubscription(0),
		summary:  func(s *api.Subscription) (string, fsm.PartitionID) { return s.Name, s.Partition },
		settings: func(s *api.Subscription) entity.Settings { return s.Settings },
		holds:    func(s *api.Subscription) string { return heldText(s.Counts) },
	}
}

func queueNoun() command.Noun {
	r := queueResource()
	create, _ := r.createVerb(command.Verb{Example: `  peeklock queue create orders
  peeklock queue create orders --lock-duration 1m --max-delivery-count 3
  peeklock queue create jobs --default-ttl 1h --dead-letter-on-expiry
  peeklock queue create once --duplicate-detection --duplicate-window 1h
  peeklock queue create eu-orders --forward-to orders --forward-dead-letters-to all-dead`})
	return command.Noun{Name: "queue", Short: "Create, list, show, update and delete queues", Verbs: []command.Verb{
		create,
		r.updateVerb(command.Verb{
			Long: `Change settings of a queue while it is in use. Settings that are not given stay, and so do the locks that receivers hold.`,
			Example: `  peeklock queue update orders --status ReceiveDisabled
  peeklock queue update orders --default-ttl forever --auto-delete-on-idle 1h
  peeklock queue update orders --retry-delay 1s --retry-delay-max 5m
  peeklock queue update orders --forward-to ''`,
		}),
		command.ListVerb(command.Verb{Use: "list", Short: "List queues with their message counts", Example: "  peeklock queue list"},
			func(i command.Invocation) ([]api.Queue, error) { return queues(i.Ctx, i.Client) }, countsHeader(),
			func(q *api.Queue) []any { return countsRow(q.Name, q.Counts, q.Partition) }),
		r.showVerb(), r.deleteVerb(),
	}}
}

func topicNoun() command.Noun {
	r := topicResource()
	create, _ := r.createVerb(command.Verb{Example: `  peeklock topic create orders
  peeklock topic create orders --duplicate-detection --max-size-mb 4096`})
	return command.Noun{Name: "topic", Short: "Create, list, show, update and delete topics", Long: `Create, list, show, update and delete topics. Clients send messages to a topic and receive them from its subscriptions.
Each subscription gets a copy of the messages that its rules match.`, Verbs: []command.Verb{
		create,
		r.updateVerb(command.Verb{Example: "  peeklock topic update orders --status SendDisabled"}),
		command.ListVerb(command.Verb{Use: "list", Short: "List topics with their message counts", Example: "  peeklock topic list"},
			func(i command.Invocation) ([]api.Topic, error) { return topics(i.Ctx, i.Client, true) },
			[]any{"name", "subscriptions", "scheduled", "size", "status", "partition"}, topicRow),
		r.showVerb(), r.deleteVerb(),
	}}
}

func topicRow(t *api.Topic) []any {
	var n api.TopicCounts
	if t.Counts != nil {
		n = *t.Counts
	}
	return []any{t.Name, n.Subscriptions, n.Scheduled, output.BytesText(n.Bytes), output.TextOf(t.Status), uint32(t.Partition)}
}

func subscriptionNoun() command.Noun {
	r := subscriptionResource()
	return command.Noun{Name: "subscription", Short: "Create, list, show, update and delete subscriptions of topics", Long: `Create, list, show, update and delete subscriptions of topics. A subscription is written
` + SubscriptionArg + `, as clients address it. It behaves like a queue that its topic fills: with all messages,
or with those that match its rules ("peeklock rule").`, Verbs: []command.Verb{
		createSubscriptionVerb(r),
		r.updateVerb(command.Verb{Example: `  peeklock subscription update orders/Subscriptions/audit --max-delivery-count 3
  peeklock subscription update orders/Subscriptions/audit --dead-letter-on-filter-errors=false`}),
		command.ListVerb(command.Verb{
			Use: "list [TOPIC]", Short: "List the subscriptions of a topic, or of all topics, with their message counts",
			Example: "  peeklock subscription list orders", Args: cli.ArgCount(0, 1), Complete: command.CompleteNames("topics"),
		}, func(i command.Invocation) ([]api.Subscription, error) {
			return subscriptions(i.Ctx, i.Client, i.Args)
		}, countsHeader(),
			func(s *api.Subscription) []any { return countsRow(s.Name, s.Counts, s.Partition) }),
		r.showVerb(), r.deleteVerb(),
	}}
}

// createSubscriptionVerb returns create with an optional filter, which becomes the first rule.
func createSubscriptionVerb(r *resource[api.Subscription]) command.Verb {
	var first ruleFlags
	v, settings := r.createVerb(command.Verb{Long: `Create a subscription of a topic. It gets all messages that are sent from now on. With a filter, it gets those that
match: the filter becomes its first rule, $Default.

` + ruleHelp, Example: `  peeklock subscription create orders/Subscriptions/audit
  peeklock subscription create orders/Subscriptions/large --sql "size > 100" --lock-duration 1m
  peeklock subscription create orders/Subscriptions/eu --correlation region=eu --forward-to eu-orders`})
	settingFlags := v.Flags
	v.Flags = func(cmd *cobra.Command) {
		settingFlags(cmd)
		first.flags(cmd)
	}
	v.Run = func(i command.Invocation) error {
		body := api.SubscriptionRequest{Settings: *settings}
		if first.given(i.Changed) {
			rule, err := first.rule()
			if err != nil {
				return err
			}
			body.DefaultRule = &rule
		}
		return r.put(i, http.MethodPut, "created", body)
	}
	v.Would = func(i command.Invocation) (command.Would, error) {
		if first.given(i.Changed) {
			if _, err := first.rule(); err != nil {
				return command.Would{}, err
			}
		}
		return r.wouldCreate(i, settings)
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
			return cli.Usagef("wrong number of arguments: %s", cmd.UseLine())
		}
		if _, _, ok := fsm.SplitSubscriptionPath(args[0]); !ok {
			return cli.Usagef("%q names no subscription: write it like %s", output.Printable(args[0], 100), SubscriptionArg)
		}
		return nil
	}
}
