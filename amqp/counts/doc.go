// Package counts counts what happens at the gateway: connections, messages, refusals, throttled requests.
//
// Package amqp counts in it. Package main passes the statistics to the metrics.
//
// Invariants:
//
//   - Counters only rise. A single message costs no atomic operation: a [Connection] counts with its own mutex held, and
//     reports to the [Totals] once for each write of output.
//   - The number of conditions and of entities with a count of their own is bounded.
package counts
