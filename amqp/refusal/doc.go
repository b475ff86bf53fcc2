// Package refusal has the reasons for which the gateway refuses something, and their texts. A [Cause] is what a
// client gets; [ReplyOf] maps the codes of the state machine to causes, one row per code, and docs/errors.md shows
// that table. [LogLimiter] keeps a client that repeats an error from filling the log.
//
// The package knows no connection, sends nothing and logs nothing: amqp adds the tracking id to a cause, logs it and
// sends it. It imports amqp/message for the errors of its parser. Everything but a LogLimiter is a value without
// state; a LogLimiter may be used concurrently.
package refusal
