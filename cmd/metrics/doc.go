// Package metrics exports the stats of a member to Prometheus.
//
//	GET /metrics ──► admin ──► Handler ──► Collect ──► statsSnapshot (at most one per second)
//	                                          │          ├── cluster.Node.Stats
//	                                          │          └── amqp.Server.Stats
//	                                          └── families: name, labels, help, how to read it
//
// Package main creates a [Collector] per member and passes its handlers to the admin server, which decides which
// callers get which. It is the only package that imports the client library of Prometheus: the other packages
// count with atomics and return plain numbers in typed structs, without names and labels.
//
// Invariants:
//
//   - A counter never falls while the process lives.
//   - The number of series is bounded: by partitions, by conditions of refusal, and for
//     entities by Config.Entities.
//   - Config.Handler(false) never shows the names of entities.
//   - docs/metrics.md lists every family; a test of cmd/peeklock compares it.
package metrics
