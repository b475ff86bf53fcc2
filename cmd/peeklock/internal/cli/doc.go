// Package cli has what all commands share: the process that they run in, their exit codes and their errors.
//
// The commands below it are clients of a cluster: of the control API over HTTP, and of the gateway over AMQP. They run no
// member, and have no access to a cluster that other HTTP and AMQP clients do not have. Each package may use those above it:
//
//	cli                                     process, exit codes, errors
//	cli/output                              all printing
//	cli/contexts                            the clusters that a user has named
//	cli/client                              the control API
//	cli/gateway                             AMQP
//	cli/command                             the table of nouns and verbs
//	cli/entities, messages, operate, doctor,
//	    backups, kubernetes, offline        the commands
//
// Package main builds the command tree with command.NewRoot, adds the commands that run members, and runs it with
// [Execute]. Package bench uses client and gateway.
//
// Invariants:
//
//   - Exit codes: 0 done, 1 refused, 2 usage error, 3 unknown outcome, 130 interrupted.
//   - A failure is one line on standard error: text that begins with "peeklock: ", or an object with --output json.
//   - A command that cannot be undone needs --yes. On a terminal, and only there, it asks for the name instead.
//   - JSON output is stable: fields are added, never renamed or removed.
//   - No secret is in an error or a list.
package cli
