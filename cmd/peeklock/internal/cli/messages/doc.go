// Package messages has the commands of messages and sessions: send, receive, peek, cancel, purge and redrive.
//
// They use AMQP (package gateway), purge and redrive also the control API.
//
//	nouns.go                         the table of commands
//	message.go subqueue.go where.go  printed messages, sub-queues, --where
//	send.go schedule.go              send, cancel
//	receive.go deferred.go           receive
//	peek.go purge.go redrive.go      the other commands of messages
//	session.go                       session list, and the flags that name a session
//
// Invariant: a message is printed before it is settled.
package messages
