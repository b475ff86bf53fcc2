// Package amqp is the gateway: it speaks AMQP 1.0 with clients, exactly as the standard defines it and
// with the conventions of the Service Bus client libraries. cmd/peeklock opens its Server on a listener and
// passes it a Broker, which routes requests to leaders, and an Authorizer for credentials. The package knows
// nothing of logs, leaders or members. Its sub-packages know no connections: amqp/management performs the requests to
// management nodes, amqp/transaction collects and commits transactions, amqp/receiver browses and selects.
// ARCHITECTURE.md lists them all.
//
//	client ── frames ──► reader ── parse ──► Broker.Send, Settle, Receiver.Lock ...
//	                        │ mu                          │
//	                    sessions, links                   │ done
//	                        │ mu                          ▼
//	client ◄── one write ── writer ◄── out []byte ◄── dispositions, transfers, flows
//
// A connection has two goroutines, regardless of the number of its sessions, links and messages:
// the reader handles frames, the writer sends the frames that were appended to conn.out. Everything
// between them is plain data under conn.mu.
//
// Invariants:
//
//   - The Broker is never called with conn.mu held, because it may call done before it
//     returns. Calls are appended to conn.brokerCalls and made by conn.unlock.
//   - A send is answered when the broker has reported its outcome, never before.
//   - A receiver never gets more than its credit, in its own count, and a link has
//     at most one Lock outstanding.
//   - Locked messages are either sent or released. Messages that a client has locked remain
//     locked when its link or connection ends.
//   - conn.newError creates every error that a client gets, and its tracking id is in the log.
//   - The delivery-tag is the lock token; the gateway keeps no table of tokens.
//   - Only a message to a topic has Properties, and rules see in them what a receiver
//     would see. A stored payload is never changed.
//   - No operation of a transaction is done before its commit, which does all of them with one
//     call of the Broker; a transaction with a refused operation can only be rolled back.
//   - A link is attached only while valid credentials cover it: when they expire or
//     their key is revoked, it is detached, and no other link is.
//   - A connection is in one namespace, and a right in one namespace is not valid in another.
//   - limits.go limits everything that a peer can cause to grow.
package amqp
