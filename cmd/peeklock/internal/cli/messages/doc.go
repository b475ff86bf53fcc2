// Package messages has the commands of messages and sessions: send, receive, peek, tail, dump, load, cancel, delete, purge,
// redrive and undefer, and those of sessions.
//
// Send, receive, load and cancel by number use AMQP (package gateway); the others use the control API.
//
//	nouns.go                         the table of commands
//	message.go subqueue.go where.go  printed messages, sub-queues, --where
//	send.go schedule.go              send, cancel
//	receive.go deferred.go           receive
//	peek.go tail.go dump.go load.go  peek, tail, dump, load
//	purge.go redrive.go              purge; redrive, delete, undefer, and cancel by conditions
//	selection.go change.go           the flags that choose messages, and changes of those that they choose
//	dry_run.go                       what --dry-run prints
//	session.go                       session list, and the flags that name a session
//
// Invariant: a message is printed before it is settled.
package messages
