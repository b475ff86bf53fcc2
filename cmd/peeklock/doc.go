// Command peeklock runs members of a cluster and is the command line that operates one.
//
//	peeklock dev      three members in this process
//	peeklock serve    one member              ── the only places that connect the packages
//	peeklock queue, message, key, bench, ...  ── clients of admin and amqp, like any other
//
// This package has the commands that run members, and the wiring. It has no logic of queues, protocols or clusters. Below it
// are internal/config (settings), internal/audit (the audit log), internal/cli (commands that are clients), internal/bench (load), and beside it cmd/listen
// (ports), cmd/metrics and cmd/objects.
//
//	main.go commands.go        the process and the command tree
//	dev.go serve.go            the two ways to run members
//	member.go wiring.go        the parts of a member, and the adapters between packages
//	config.go tls.go           settings, certificates
//	listen.go socket.go profile.go  listeners, the control socket, profiles
//	memory.go memory_guard.go  the memory limit and its parts
//	metrics.go traces.go slow.go    observation
//	emulator.go                Config.json of the emulator; package admin/emulator reads it
//
// Invariants:
//
//   - Client ports are bound before any data is touched.
//   - Packages of a member know each other only by the interfaces that wiring.go adapts.
//   - No secret is in a log or an error.
package main
