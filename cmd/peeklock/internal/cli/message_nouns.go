package cli

import (
	"time"

	"github.com/spf13/cobra"
)

// MessageNouns returns the commands of messages and sessions.
func MessageNouns() []noun { return []noun{messageNoun(), sessionNoun()} }

func messageNoun() noun {
	return noun{
		name: "message", short: "Send, receive, peek at, cancel, purge and redrive messages", long: `Send, receive, peek at, cancel, purge and redrive messages. Messages are sent to a QUEUE or TOPIC. NAME is a queue, or a
subscription written ` + subscriptionArg + `.`,
		verbs: []verb{sendVerb(), receiveVerb(), peekVerb(), cancelVerb(), purgeVerb(), redriveVerb()},
	}
}

func sendVerb() verb {
	var o sendOptions
	return verb{
		use: "send QUEUE|TOPIC [BODY...]", short: "Send messages",
		long: `Send each BODY as a message. Without BODY and --size, send each line of standard input as a message. A message counts
as sent when a quorum of members has it on disk.

With --at or --in the messages are scheduled: they become active at that time. Until then "message cancel" cancels
them by the sequence numbers that are printed.`,
		example: `  peeklock message send orders hello
  seq 1000 | peeklock message send orders
  peeklock message send orders --size 1024 --count 100
  peeklock message send orders hello --ttl 10m
  peeklock message send orders hello --subject order --property region=eu --property size:=7
  peeklock message send orders hello --session customer-7
  peeklock message send orders "good morning" --at 2026-11-21T08:00:00Z`,
		args: ArgCount(1, -1), complete: completeNames("queues", "topics"),
		flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.IntVar(&o.count, "count", 1, "number of times that each body is sent")
			f.IntVar(&o.size, "size", 0, "send a generated body of this many bytes")
			f.StringVar(&o.id, "message-id", "", "message id")
			f.StringVar(&o.subject, "subject", "", "subject (label)")
			f.StringVar(&o.contentType, "content-type", "", "content type, such as application/json")
			f.StringVar(&o.correlation, "correlation-id", "", "correlation id")
			f.StringVar(&o.replyTo, "reply-to", "", "reply-to address")
			f.StringVar(&o.to, "to", "", "to address")
			f.Var(sessionFlag{&o.session}, "session", "session id")
			f.StringArrayVar(&o.properties, "property", nil, "application property as key=value, or key:=json for a number or another type; repeatable")
			f.Var(durationFlag(&o.ttl), "ttl", "time to live of the messages, such as 30s or PT1H")
			f.StringVar(&o.at, "at", "", "schedule the messages for this time, such as 2026-11-20T12:00:00Z")
			f.Var(durationFlag(&o.in), "in", "schedule the messages for this long from now, such as 90s")
		},
		run: func(i invocation) error { return send(i, &o) },
	}
}

func receiveVerb() verb {
	var o receiveOptions
	return verb{
		use: "receive NAME", short: "Receive messages and settle them",
		long: `Receive messages under a lock, print each one, and then settle it. The default settlement is --complete. Deferred messages
are received only with --sequence. From a queue or subscription that requires sessions, the command accepts a session,
receives its messages in order, and releases the session at the end.`,
		example: `  peeklock message receive orders --count 0
  peeklock message receive orders/Subscriptions/audit --count 10
  peeklock message receive orders --dead-letter --reason "cannot be read"
  peeklock message receive orders --defer
  peeklock message receive orders --session customer-7 --count 0
  peeklock message receive orders --next-session --count 0 --wait 1s
  peeklock message receive orders --sequence 7`,
		args: ArgCount(1, 1), complete: completeNames("queues", "subscriptions"),
		flags: func(cmd *cobra.Command) {
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
			f.DurationVar(&o.wait, "wait", 5*time.Second, "how long to wait for the next message")
			f.StringVar(&o.reason, "reason", "", "reason, with --dead-letter")
			f.StringVar(&o.description, "description", "", "description, with --dead-letter")
		},
		run: func(i invocation) error { return receive(i, &o) },
	}
}

func peekVerb() verb {
	var o peekOptions
	return verb{
		use: "peek NAME", short: "Show messages without locking them",
		long: "Show messages in the order of their sequence numbers, without locking them.\n\n" + whereHelp,
		example: `  peeklock message peek orders
  peeklock message peek orders --where "customer = 7 AND sys.Label LIKE 'order%'"
  peeklock message peek orders/Subscriptions/audit
  peeklock message peek orders --session customer-7
  peeklock message peek orders --dead-letters --count 0 --where "DeadLetterReason = 'TTLExpiredException'"`,
		args: ArgCount(1, 1), complete: completeNames("queues", "subscriptions"),
		flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			o.flags(f, "peek at")
			f.IntVar(&o.count, "count", 10, "stop after this many messages; 0: all")
			f.Int64Var(&o.from, "from", 1, "first sequence number")
			f.Var(sessionFlag{&o.session}, "session", "only messages of this session")
			f.Var(whereFlag{&o.where}, "where", "only messages for which this expression is true")
		},
		run: func(i invocation) error { return peek(i, &o) },
	}
}

func cancelVerb() verb {
	return verb{
		use: "cancel QUEUE|TOPIC SEQUENCE...", short: "Cancel scheduled messages",
		long: `Cancel scheduled messages by the sequence numbers that "message send" with --at or --in has printed ("message peek" shows them
too). The command cancels all of them, or none if one of them is no longer scheduled.`,
		example: "  peeklock message send orders hello --in 1h\n  peeklock message cancel orders 7",
		args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 1+cancelCountMax {
				return Usagef("wrong number of arguments: %s, with 1 to %d numbers", cmd.UseLine(), cancelCountMax)
			}
			return nil
		},
		complete: completeNames("queues", "topics"),
		run:      cancel,
	}
}

func purgeVerb() verb {
	var o purgeOptions
	return verb{
		use: "purge NAME", short: "Delete messages",
		long: `Delete messages, oldest first. Messages that are locked, deferred or scheduled stay. Without --max, the command deletes as
many messages as the queue has when it starts, so messages that are sent meanwhile do not keep it running.`,
		example: `  peeklock message purge orders --yes
  peeklock message purge orders --dead-letters --older-than P7D --yes
  peeklock message purge orders/Subscriptions/audit --yes
  peeklock message purge orders --before 2026-11-20T12:00:00Z --max 5000 --yes`,
		args: ArgCount(1, 1), complete: completeNames("queues", "subscriptions"),
		flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			o.flags(f, "purge")
			f.StringVar(&o.before, "before", "", "only messages that were enqueued before this time, such as 2026-11-20T12:00:00Z")
			f.Var(durationFlag(&o.olderThan), "older-than", "only messages that were enqueued longer ago than this, such as 90m or P7D")
			f.IntVar(&o.max, "max", 0, "delete at most this many; 0: as many as there are at the start")
			f.BoolVar(&o.yes, "yes", false, "confirm the deletion, which cannot be undone")
		},
		run: func(i invocation) error { return purge(i, &o) },
	}
}

func redriveVerb() verb {
	var o redriveOptions
	return verb{
		use: "redrive NAME", short: "Move dead letters back to their queue or subscription",
		long: `Move dead letters back to the queue or subscription that they came from. They keep their sequence numbers; their failed
deliveries are reset, and their time to live begins again. Dead letters that a receiver has locked or deferred stay.
Without filters all dead letters move; with several filters, those that match all of them.

` + whereHelp,
		example: `  peeklock message redrive orders --dry-run
  peeklock message redrive orders --reason MaxDeliveryCountExceeded
  peeklock message redrive orders/Subscriptions/audit --max 10
  peeklock message redrive orders --contains '"customer":7' --older-than 1h --max 100
  peeklock message redrive orders --where "DeadLetterReason LIKE 'Max%' AND customer IN (7, 8)"`,
		args: ArgCount(1, 1), complete: completeNames("queues", "subscriptions"),
		flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringVar(&o.reason, "reason", "", "only messages that were dead-lettered with this reason")
			f.StringVar(&o.contains, "contains", "", "only messages whose body contains this text")
			f.Var(durationFlag(&o.olderThan), "older-than", "only messages that were enqueued longer ago than this, such as 90m or P7D")
			f.Var(whereFlag{&o.where}, "where", "only messages for which this expression is true")
			f.IntVar(&o.max, "max", 0, "move at most this many; 0: all that match")
			f.BoolVar(&o.dryRun, "dry-run", false, "only show which messages would move")
		},
		run: func(i invocation) error { return redrive(i, &o) },
	}
}

func sessionNoun() noun {
	count := 100
	return noun{name: "session", short: "List the sessions of queues and subscriptions", long: `List the sessions of queues and subscriptions that were created with --requires-session. "peeklock message" sends to a
session, receives from it and peeks at it.`, verbs: []verb{{
		use: "list NAME", short: "List sessions that have messages or state",
		example: `  peeklock session list orders
  peeklock session list orders/Subscriptions/audit --count 0 -o json`,
		args: ArgCount(1, 1), complete: completeNames("queues", "subscriptions"),
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&count, "count", count, "stop after this many sessions; 0: all")
		},
		run: func(i invocation) error { return listSessions(i, count) },
	}}}
}
