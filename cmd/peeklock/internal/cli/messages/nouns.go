package messages

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
)

// Nouns returns the commands of messages and sessions.
func Nouns() []command.Noun { return []command.Noun{messageNoun(), sessionNoun()} }

func messageNoun() command.Noun {
	return command.Noun{
		Name: "message", Short: "Send, receive, find, cancel, delete and redrive messages", Long: `Send, receive, find, cancel, delete and redrive messages. Messages are sent to a QUEUE or TOPIC. NAME is a queue, or a
subscription written ` + entities.SubscriptionArg + `.`,
		Verbs: []command.Verb{sendVerb(), receiveVerb(), peekVerb(), tailVerb(), dumpVerb(), loadVerb(), cancelVerb(), deleteVerb(), purgeVerb(), redriveVerb(), undeferVerb()},
	}
}

func sendVerb() command.Verb {
	var o sendOptions
	return command.Verb{
		Use: "send QUEUE|TOPIC [BODY...]", Short: "Send messages",
		Long: `Send each BODY as a message. Without BODY and --size, send each line of standard input as a message. A message counts
as sent when a quorum of members has it on disk.

With --at or --in the messages are scheduled: they become active at that time. Until then "message cancel" cancels
them by the sequence numbers that are printed.

-o json prints the message ids. It has sequence numbers for scheduled messages only: AMQP confirms a message without its
number. "message peek --where" with sys.MessageId = 'ID' finds it.`,
		Example: `  peeklock message send orders hello
  seq 1000 | peeklock message send orders
  peeklock message send orders --size 1024 --count 100
  peeklock message send orders hello --ttl 10m
  peeklock message send orders hello --subject order --property region=eu --property size:=7
  peeklock message send orders hello --session customer-7
  peeklock message send orders "good morning" --at 2026-11-21T08:00:00Z`,
		Args: cli.ArgCount(1, -1), Complete: command.CompleteNames("queues", "topics"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.IntVar(&o.count, "count", 1, "number of times that each body is sent")
			quantity.DurationVar(f, &o.timeout, "timeout", sendTimeout, "how long to wait for the confirmation of a message; afterwards it is unknown whether it was sent")
			quantity.BytesVar(f, &o.size, "size", 0, "send a generated body of this size, such as 1KiB")
			f.StringVar(&o.id, "message-id", "", "message id")
			f.StringVar(&o.subject, "subject", "", "subject (label)")
			f.StringVar(&o.contentType, "content-type", "", "content type, such as application/json")
			f.StringVar(&o.correlation, "correlation-id", "", "correlation id")
			f.StringVar(&o.replyTo, "reply-to", "", "reply-to address")
			f.StringVar(&o.to, "to", "", "to address")
			f.Var(sessionFlag{&o.session}, "session", "session id")
			f.StringArrayVar(&o.properties, "property", nil, "application property as key=value, or key:=json for a number or another type; repeatable")
			f.Var(command.DurationFlag(&o.ttl), "ttl", "time to live of the messages, such as 30s or PT1H")
			f.StringVar(&o.at, "at", "", "schedule the messages for this time, such as 2026-11-20T12:00:00Z")
			f.Var(command.DurationFlag(&o.in), "in", "schedule the messages for this long from now, such as 90s")
		},
		Run:   func(i command.Invocation) error { return send(i, &o) },
		Would: func(i command.Invocation) (command.Would, error) { return wouldSend(i, &o) },
	}
}

func receiveVerb() command.Verb {
	var o receiveOptions
	return command.Verb{
		Use: "receive NAME", Short: "Receive messages and settle them",
		Long: `Receive messages under a lock, print each one, and then settle it. The default settlement is --complete. Deferred messages
are received only with --sequence. From a queue or subscription that requires sessions, the command accepts a session,
receives its messages in order, and releases the session at the end.`,
		Example: `  peeklock message receive orders --count 0
  peeklock message receive orders/Subscriptions/audit --count 10
  peeklock message receive orders --dead-letter --reason "cannot be read"
  peeklock message receive orders --defer
  peeklock message receive orders --session customer-7 --count 0
  peeklock message receive orders --next-session --count 0 --wait 1s
  peeklock message receive orders --sequence 7`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("queues", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.BoolVar(&o.complete, "complete", false, "complete the messages, which deletes them (default)")
			f.BoolVar(&o.abandon, "abandon", false, "abandon the messages: they return to the queue and count as failed deliveries")
			f.BoolVar(&o.deadLetter, "dead-letter", false, "move the messages to the dead-letter queue")
			f.BoolVar(&o.deferred, "defer", false, "defer the messages; --sequence receives them later")
			f.BoolVar(&o.receiveAndDelete, "delete", false, "receive-and-delete: messages are deleted before they are printed")
			o.subQueue.flags(f, "receive from")
			o.chosenSession.flags(f)
			f.Int64SliceVar(&o.sequences, "sequence", nil, "receive the deferred messages with these sequence numbers, separated by commas")
			f.IntVar(&o.count, "count", 1, "stop after this many messages; 0: when no further message arrives")
			quantity.DurationVar(f, &o.wait, "wait", 5*time.Second, "how long to wait for the next message")
			f.StringVar(&o.reason, "reason", "", "reason, with --dead-letter")
			f.StringVar(&o.description, "description", "", "description, with --dead-letter")
		},
		Run: func(i command.Invocation) error { return receive(i, &o) },
	}
}

func peekVerb() command.Verb {
	var o peekOptions
	return command.Verb{
		Use: "peek NAME", Short: "Show messages without locking them",
		Long: `Show messages in the order of their sequence numbers, without locking them. With -o json every property is shown with its
AMQP type.

` + whereHelp,
		Example: `  peeklock message peek orders
  peeklock message peek orders --where "customer = 7 AND sys.Label LIKE 'order%'"
  peeklock message peek orders --state scheduled,deferred
  peeklock message peek orders --contains Berlin --path '$.customer.id=7'
  peeklock message peek orders/Subscriptions/audit
  peeklock message peek orders --session customer-7
  peeklock message peek orders --dead-letters --count 0 --where "DeadLetterReason = 'TTLExpiredException'"`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("queues", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			o.subQueue.flags(f, "peek at")
			o.flags(f)
			f.IntVar(&o.count, "count", 10, "stop after this many messages; 0: all")
			f.Int64Var(&o.from, "from", 1, "first sequence number")
			quantity.BytesVar(f, &o.bodyBytes, "body-bytes", 64<<10, "show at most this much of each body, up to 4MiB")
		},
		Run: func(i command.Invocation) error { return peek(i, &o) },
	}
}

func cancelVerb() command.Verb {
	var o changeOptions
	return command.Verb{
		Use: "cancel QUEUE|TOPIC [SEQUENCE...]", Short: "Cancel scheduled messages",
		Long: `Cancel scheduled messages by the sequence numbers that "message send" with --at or --in has printed ("message peek" shows them
too). The command cancels all of them, or none if one of them is no longer scheduled. Without numbers it cancels the scheduled
messages of a queue that meet the conditions.

` + whereHelp,
		Example: `  peeklock message send orders hello --in 1h
  peeklock message cancel orders 7
  peeklock message cancel orders --where "customer = 7" --dry-run
  peeklock message cancel orders --contains Berlin --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 1+cancelCountMax || len(args) == 1 && !o.selects() {
				return cli.Usagef("wrong number of arguments: %s, with 1 to %d numbers, or with a condition", cmd.UseLine(), cancelCountMax)
			}
			return nil
		},
		Complete: command.CompleteNames("queues", "topics"),
		Flags: func(cmd *cobra.Command) {
			o.flags(cmd.Flags(), "cancel")
			cmd.Flags().BoolVar(&o.yes, "yes", false, "confirm a cancellation by conditions, which cannot be undone")
		},
		Run: func(i command.Invocation) error {
			if o.selects() || o.dryRun {
				return cancelSelected(i, &o)
			}
			return cancel(i)
		},
	}
}

func deleteVerb() command.Verb {
	var o changeOptions
	return command.Verb{
		Use: "delete NAME [SEQUENCE...]", Short: "Delete messages by number or by conditions",
		Long: `Delete messages by their sequence numbers, or those that meet all conditions, also deferred and scheduled ones. Messages that a
receiver has locked stay. Interrupted by a failure, the command says where to go on; to repeat it does no harm.

` + whereHelp,
		Example: `  peeklock message delete orders 7 9 --yes
  peeklock message delete orders --state deferred --older-than P7D --yes
  peeklock message delete orders --where "customer = 7" --dry-run
  peeklock message delete orders --dead-letters --reason TTLExpiredException --max 1000 --yes`,
		Args: numbersOrConditions(&o), Complete: command.CompleteNames("queues", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			o.subQueue.flags(cmd.Flags(), "delete from")
			o.flags(cmd.Flags(), "delete")
			cmd.Flags().BoolVar(&o.yes, "yes", false, "confirm the deletion, which cannot be undone")
		},
		Run: func(i command.Invocation) error { return deleteMessages(i, &o) },
	}
}

func undeferVerb() command.Verb {
	var o changeOptions
	return command.Verb{
		Use: "undefer NAME [SEQUENCE...]", Short: "Make deferred messages ready again",
		Long: `Make deferred messages ready for receivers again: by their sequence numbers, or those that meet all conditions. They return to
their place in the order of the queue.

` + whereHelp,
		Example: `  peeklock message undefer orders 7
  peeklock message undefer orders --older-than 1h`,
		Args: numbersOrConditions(&o), Complete: command.CompleteNames("queues", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			o.subQueue.flags(cmd.Flags(), "look at")
			o.flags(cmd.Flags(), "return")
		},
		Run: func(i command.Invocation) error { return undefer(i, &o) },
	}
}

// numbersOrConditions checks that a command has sequence numbers or conditions: without either it would concern all messages.
func numbersOrConditions(o *changeOptions) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) > 1+cancelCountMax || len(args) == 1 && !o.selects() {
			return cli.Usagef("wrong number of arguments: %s, with 1 to %d numbers, or with a condition such as --state or --where", cmd.UseLine(), cancelCountMax)
		}
		return nil
	}
}

func purgeVerb() command.Verb {
	var o purgeOptions
	return command.Verb{
		Use: "purge NAME", Short: "Delete messages",
		Long: `Delete messages, oldest first. Messages that are locked, deferred or scheduled stay. Without --max, the command deletes as
many messages as the queue has when it starts, so messages that are sent meanwhile do not keep it running.`,
		Example: `  peeklock message purge orders --yes
  peeklock message purge orders --dead-letters --older-than P7D --yes
  peeklock message purge orders/Subscriptions/audit --yes
  peeklock message purge orders --before 2026-11-20T12:00:00Z --max 5000 --yes`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("queues", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			o.flags(f, "purge")
			f.StringVar(&o.before, "before", "", "only messages that were enqueued before this time, such as 2026-11-20T12:00:00Z")
			f.Var(command.DurationFlag(&o.olderThan), "older-than", "only messages that were enqueued longer ago than this, such as 90m or P7D")
			f.IntVar(&o.max, "max", 0, "delete at most this many; 0: as many as there are at the start")
			f.BoolVar(&o.dryRun, "dry-run", false, "only show how many messages there are to delete")
			f.BoolVar(&o.yes, "yes", false, "confirm the deletion, which cannot be undone")
		},
		Run: func(i command.Invocation) error { return purge(i, &o) },
	}
}

func redriveVerb() command.Verb {
	var o redriveOptions
	return command.Verb{
		Use: "redrive NAME", Short: "Move dead letters back to their queue or subscription",
		Long: `Move dead letters back to the queue or subscription that they came from. They keep their sequence numbers; their failed
deliveries are reset, and their time to live begins again. Dead letters that a receiver has locked or deferred stay.
Without conditions all dead letters move.

With --to they are sent to another queue or topic, and with --set, --remove, --body-file and --new-id they are sent changed:
each as a new message, in one transaction with the deletion of its dead letter, so that none is lost or doubled. A changed
dead letter of a subscription returns to this subscription alone, whatever its rules say; --to its topic sends it to all.

` + whereHelp,
		Example: `  peeklock message redrive orders --dry-run
  peeklock message redrive orders --reason MaxDeliveryCountExceeded
  peeklock message redrive orders/Subscriptions/audit --max 10
  peeklock message redrive orders --contains '"customer":7' --older-than 1h --max 100
  peeklock message redrive orders --where "DeadLetterReason LIKE 'Max%' AND customer IN (7, 8)"
  peeklock message redrive orders --sequence 7,9 --to repaired --set attempt:=2 --new-id`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("queues", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			o.flags(f, "move")
			f.Lookup("state").Hidden = true // dead letters that are deferred or locked do not move
			f.StringVar(&o.to, "to", "", "send them to this queue or topic")
			f.StringArrayVar(&o.properties, "set", nil, "set an application property: key=value, or key:=json for a number or another type; repeatable")
			f.StringArrayVar(&o.remove, "remove", nil, "remove an application property; repeatable")
			f.StringVar(&o.bodyFile, "body-file", "", "replace the body by the content of this file, at most 64 KiB")
			f.BoolVar(&o.newID, "new-id", false, "give them new message ids, otherwise they keep theirs")
		},
		Run: func(i command.Invocation) error { return redrive(i, &o) },
	}
}

func sessionNoun() command.Noun {
	count, file := 100, ""
	complete := command.CompleteNames("queues", "subscriptions")
	return command.Noun{Name: "session", Short: "Look at the sessions of queues and subscriptions, and change them", Long: `Look at the sessions of queues and subscriptions that were created with --requires-session, and change their state and locks, also
while a receiver holds them. "peeklock message" sends to a session, receives from it and peeks at it.`, Verbs: []command.Verb{
		{
			Use: "list NAME", Short: "List sessions that have messages or state",
			Example: `  peeklock session list orders
  peeklock session list orders/Subscriptions/audit --count 0 -o json`,
			Args: cli.ArgCount(1, 1), Complete: complete,
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().IntVar(&count, "count", count, "stop after this many sessions; 0: all")
			},
			Run: func(i command.Invocation) error { return listSessions(i, count) },
		},
		{
			Use: "state NAME SESSION", Short: "Show the state of a session", Example: "  peeklock session state orders customer-7",
			Args: cli.ArgCount(2, 2), Complete: complete, Run: showSessionState,
		},
		{
			Use: "set-state NAME SESSION [STATE]", Short: "Set the state of a session",
			Long: `Set the state of a session. A receiver that holds the session keeps it, and may overwrite the state.`,
			Example: `  peeklock session set-state orders customer-7 '{"step":3}'
  peeklock session set-state orders customer-7 --file state.bin`,
			Args: cli.ArgCount(2, 3), Complete: complete,
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&file, "file", "", "file with the state, at most 90 KiB")
			},
			Run:   func(i command.Invocation) error { return setSessionState(i, file) },
			Would: func(i command.Invocation) (command.Would, error) { return wouldSetState(i, file) },
		},
		{
			Use: "clear-state NAME SESSION", Short: "Remove the state of a session", Example: "  peeklock session clear-state orders customer-7",
			Args: cli.ArgCount(2, 2), Complete: complete, Run: clearSessionState, Would: wouldClearState,
		},
		{
			Use: "release NAME SESSION", Short: "End the lock of the receiver that holds a session",
			Long: `End the lock of the receiver that holds a session. Messages that it has locked return to their place without a failed delivery, and
the receiver learns that it has lost the session.`,
			Example: "  peeklock session release orders customer-7",
			Args:    cli.ArgCount(2, 2), Complete: complete, Run: endSessionLock, Would: wouldEndLock,
		},
	}}
}
