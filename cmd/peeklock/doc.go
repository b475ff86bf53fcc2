// Command peeklock is everything that is run: a member of a cluster, a whole cluster for
// development, and the command line that operates one.
//
//	peeklock dev      three members in this process
//	peeklock serve    one member              ── the only places that wire the rooms
//	peeklock queue, message, key, bench, ...  ── clients of admin and amqp, like any other
//
// What belongs together:
//
//	main.go root.go            the process, the command tree, exit codes
//	output.go meter.go         all printing: table, json, yaml; progress on a terminal
//	dev.go serve.go            the two ways to run members
//	member.go wiring.go        what a member is made of; the adapters between rooms
//	config.go config_file.go   settings of serve: file < environment < flags
//	listen.go profile.go       listeners, processors, profiles
//	tls.go dev_tls.go          certificates; package cmd/listen tells protocols apart
//	config_secure.go           what is encrypted, audited, and who is believed
//	emulator.go                Config.json of the emulator; package admin/emulator reads it
//	client.go dataplane.go     the control API and AMQP as clients use them
//	queue*.go message*.go namespace.go key.go cluster.go
//	bench*.go                  load, measuring, and the check of every message
//
// Invariants:
//
//   - Exit codes: 0 done, 1 refused, 2 wrong use, 3 nobody knows whether it was done.
//   - A failure is one line on standard error that begins with "peeklock: ".
//   - The command line has no private door: what it does, any HTTP and AMQP client can.
//   - What cannot be undone needs --yes, and is never asked about: scripts do not answer.
//   - JSON output is stable: fields are added, never renamed or removed.
//   - Client ports are bound before any data is touched.
//   - No secret is in a log, an error or a list; only key show and what makes a key print one.
package main
