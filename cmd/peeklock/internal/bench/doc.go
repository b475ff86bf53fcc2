// Package bench is the load generator: it puts load on a cluster with AMQP clients, measures throughput and latency, and
// checks every message.
//
// Package main adds its command ([New]) to those of package cli, whose client it uses for connections, requests and output.
// It does not start members, and it does not coordinate several load machines.
//
//	bench.go                       options, entities, one run
//	load.go                        the phases of a run: connect, warm up, measure, wait for the rest
//	sender.go receiver.go          the clients
//	session.go topic.go            runs with sessions and with a topic
//	ledger.go                      what happened to every message: lost, duplicated, unexpected
//	report.go cpu.go               the report
//
// Invariants:
//
//   - A message that was confirmed and is not received, is received again after its completion, or was never sent makes
//     the command fail.
//   - The bookkeeping allocates nothing per message.
package bench
