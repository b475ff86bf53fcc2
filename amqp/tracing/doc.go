// Package tracing creates OpenTelemetry spans for the messages that pass through the gateway.
//
// Package amqp begins and ends the spans where messages arrive, are delivered and are settled.
//
// Invariants:
//
//   - Only messages whose sender was sampled have spans.
//   - Without a tracer nothing is searched and nothing is allocated.
//   - The number of spans that one transfer or disposition creates is bounded.
package tracing
