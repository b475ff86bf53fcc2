// Package admin is what is asked of a cluster over HTTP: the control API of an operator, the
// command line and scripts (JSON, under /v1), and the administration API of the service, which
// the official administration clients speak (ATOM, everywhere else).
//
//	client ── HTTP ──> Server ── guard ── admit ─┬─ handler (JSON) ──┬─ Control ──> the cluster
//	                     │                  │    └─ atom handler ────┘
//	                     │                  └ which namespace; who may: the control socket, or a key that reaches it
//	                     └ limits: connections, requests, bytes, time
//
// The package knows the cluster only through [Control]; errors come as fsm.Code and
// leave as an HTTP status, by one table (problem.go).
//
// Invariants:
//
//   - Every answer that is not 2xx carries a [Problem], or to administration clients an Error
//     element, with a tracking id that is also in the log.
//   - Both APIs read and write the same entities through the same checks (Settings.over,
//     Rule.rule): neither can make what the other cannot show.
//   - A request reaches one namespace, and what its key is for: see routes and atom.Target.need.
//   - Every change is a line of the audit log. Keys are in no log and no error.
//   - Nothing a client sends can make the process hold more than a constant: see the
//     limits in server.go.
//   - The JSON of this package is stable: fields are added, never renamed or removed.
package admin
