// Package rule converts rules of subscriptions between AMQP and the state machine: the maps of add-rule
// requests (Parse), and the described lists of enumerate-rules answers (Encode). The management node of
// the gateway (amqp) calls it. It does not evaluate rules (fsm/filter does) and does not store them.
//
// Invariants:
//
//   - A rule that Parse accepts is one that the state machine accepts, and Encode can write it.
//   - Errors of Parse are clauses fit for the client, without a code.
package rule
