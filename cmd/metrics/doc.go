// Package metrics turns the figures of a member into what Prometheus reads.
//
//	GET /metrics ──► admin ──► Handler ──► Collect ──► picture (at most one a second)
//	                                          │          ├── cluster.Node.Stats
//	                                          │          └── amqp.Server.Stats
//	                                          └── families: name, labels, help, how to read it
//
// It is the only room that knows the client library of Prometheus. The others count with
// atomics and tell figures as plain numbers; they have no names for them and no labels.
//
// Invariants:
//
//   - A counter never falls while the process lives.
//   - The number of series is bounded: by partitions, by conditions of refusal, and for
//     entities by Config.Entities.
//   - What the names of entities are, Config.Handler(false) never tells.
//   - docs/metrics.md lists every family; a test of cmd/peeklock compares it.
package metrics
