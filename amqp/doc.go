// Package amqp is the gateway: it speaks AMQP 1.0 with clients, in the exact words of
// the standard and with the conventions of the Service Bus client libraries. cmd/peeklock opens its
// Server on a listener and gives it a Broker, which routes requests to leaders, and an Authorizer
// for credentials. It knows nothing of logs, leaders or members. The stored form of messages is in
// amqp/message, rules on the wire in amqp/rule, the codec in amqp/wire, the memory budget in amqp/budget.
//
//	client ── frames ──► reader ── parse ──► Broker.Send, Settle, Receiver.Lock ...
//	                        │ mu                          │
//	                    sessions, links                   │ done
//	                        │ mu                          ▼
//	client ◄── one write ── writer ◄── out []byte ◄── dispositions, transfers, flows
//
// A connection has two goroutines, whatever number of sessions, links and messages it
// has: the reader handles frames, the writer sends what has been appended to
// conn.out. Everything between them is plain data under conn.mu.
//
// Invariants:
//
//   - The Broker is never called with conn.mu held, because it may call done before it
//     returns. Calls are appended to conn.brokerCalls and made by conn.unlock.
//   - A send is answered when the broker has reported its outcome, never before.
//   - A receiver never gets more than its credit as it counts it itself, and a link has
//     at most one Lock outstanding.
//   - Locked messages are either sent or released. What a client has locked stays
//     locked when its link or connection ends.
//   - Every error that a client gets is made by conn.newError, and its tracking id is in the log.
//   - The delivery-tag is the lock token; the gateway keeps no table of tokens.
//   - Only a message to a topic carries Properties, and rules see in them what a receiver
//     would see. A stored payload is never changed.
//   - Nothing of a transaction is done before its commit, and then everything with one call of
//     the Broker; a transaction with a refused operation can only be rolled back.
//   - A link is attached only while valid credentials cover it: when they expire or
//     their key is revoked, it is detached, and no other link is.
//   - A connection is in one namespace, and a right in one namespace is not valid in another.
//   - Everything that a peer can make grow has a limit in limits.go.
package amqp
