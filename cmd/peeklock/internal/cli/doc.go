// Package cli has the commands that are clients of a cluster: of the control API over HTTP, and of the gateway over AMQP.
//
// Package main builds the command tree with [NewRoot], adds the commands that run members, and runs it with [Execute].
// Package bench uses the [Client]. This package runs no member, and it has no access to a cluster that other HTTP and AMQP
// clients do not have.
//
//	command.go                 the table of nouns and verbs, and verbs that many nouns share
//	*_noun.go *_nouns.go       rows of the table
//	root.go                    process, exit codes, errors
//	output.go meter.go         all printing: table, json, yaml; progress on a terminal
//	client.go socket_client.go the control API
//	dataplane.go               AMQP
//	message*.go session.go     commands over AMQP
//	operate*.go cluster*.go restore.go raft_log.go kubernetes*.go  operation
//	import.go remote_control.go  Config.json of the emulator; package admin/emulator reads it
//
// Invariants:
//
//   - Exit codes: 0 done, 1 refused, 2 usage error, 3 unknown outcome.
//   - A failure is one line on standard error that begins with "peeklock: ".
//   - A command that cannot be undone needs --yes; no command asks a question.
//   - JSON output is stable: fields are added, never renamed or removed.
//   - No secret is in an error or a list; only key show and the commands that create keys print one.
package cli
