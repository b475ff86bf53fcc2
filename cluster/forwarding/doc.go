// Package forwarding moves messages between entities: the messages of entities that forward (ForwardTo,
// ForwardDeadLettersTo), and those that transactions send to other partitions.
//
//	sub-queue with something to forward ─► task ─► step ─► step ─► ... ─► done
//	                                        ▲        │
//	                                        └ backoff┘ destination or catalog not available
//
// Package cluster makes one Forwarder per member and tells it which partitions the member leads; the
// router finds destinations and transfers batches to them. The Forwarder decides nothing about
// messages: the state machines of source and destination do.
//
// Invariants:
//
//   - A forwarded message arrives once: the state machines at both ends know how far a batch has come,
//     and the Forwarder remembers nothing that the next leader would need.
//   - A destination that does not answer cannot occupy all slots.
//   - No lock is held while a replica or the router is called.
package forwarding
