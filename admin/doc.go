// Package admin is the control API: what an operator, the command line and scripts ask
// of a cluster over HTTP.
//
//	client ── HTTP/JSON ──> Server ── guard ── handler ── Control ──> the cluster
//	                          │         │
//	                          │         └ who may: loopback, or a key with Manage
//	                          └ limits: connections, requests, bytes, time
//
// The package knows the cluster only through [Control]; errors come as fsm.Code and
// leave as an HTTP status, by one table (problem.go).
//
// Invariants:
//
//   - Every answer that is not 2xx carries a [Problem] with a tracking id that is also
//     in the log.
//   - Nothing a client sends can make the process hold more than a constant: see the
//     limits in server.go.
//   - The JSON of this package is stable: fields are added, never renamed or removed.
package admin
