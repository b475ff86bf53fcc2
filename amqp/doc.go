// Package amqp is the gateway: it speaks AMQP 1.0 with clients, in the exact words of
// the standard and with the habits of the Service Bus client libraries. It knows
// nothing of logs, leaders or members: all that it wants of the broker is the Broker
// interface, and the Authorizer for credentials.
//
//	client ── frames ──► reader ── parse ──► Broker.Send, Settle, Receiver.Lock ...
//	                        │ mu                          │
//	                    sessions, links                   │ done
//	                        │ mu                          ▼
//	client ◄── one write ── writer ◄── out []byte ◄── dispositions, transfers, flows
//
// A connection has two goroutines, whatever number of sessions, links and messages it
// carries: the reader takes frames in, the writer sends what has been appended to
// conn.out. Everything between them is plain data under conn.mu.
//
// What holds at all times:
//
//   - The Broker is never called with conn.mu held, because it may call done before it
//     returns. Calls are put into conn.after and made by conn.unlock.
//   - A send is answered when the broker has said what became of it, never before.
//   - A receiver never gets more than its credit as it counts it itself, and a link has
//     at most one Lock outstanding.
//   - What was locked is either sent or released. What a client has locked stays
//     locked when its link or connection goes.
//   - Every no that a client gets is made by conn.explain, and its tracking id is in the log.
//   - A lock token on the wire is the delivery-tag; the gateway keeps no table of them.
//   - Only a message to a topic carries Properties, and rules see in them what a receiver
//     would see. A stored payload is never changed.
//   - Nothing of a transaction is done before its commit, and then all of it with one call of
//     the Broker; one with a refused operation can only be rolled back.
//   - A link is attached only while credentials that count cover it: when they end, by time or
//     because their key is gone, it is detached, and nothing else is.
//   - A connection is in one namespace, and a right in one is none in another.
//   - Everything that a peer can make grow has a bound in limits.go.
package amqp
