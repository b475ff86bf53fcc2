// Package client sends requests to the leaders of partitions and retries until there is an answer.
//
//	router, entities ─► Clients ─► Client (one per partition) ─► this member's replica
//	                                  │                     └──► rpc.Conn ─► the leader's replica
//	                                  └── findLeader: which member leads?
//
// Package cluster gives it a Transport. It may not import the packages that use it, nor package cluster: it does not know
// entities, gossip, placement or moves. It learns from its Transport which members may lead, and accepts a leader only when
// that member itself says that it leads.
//
// Invariants:
//
//   - A request has one header for its whole life, so the state machine performs it at most once;
//     the client submits it until it is Done, so it is performed at least once, or the
//     caller gets ServerBusy (certainly not done) or Timeout (perhaps done).
//   - A receiver has at most one Lock outstanding: it gets the messages that were locked for it, whichever
//     leader answers.
//   - No lock is held while a replica, a connection or a function of the caller is called.
//
// All methods are safe for concurrent use. A done function is called exactly once, possibly before the method returns, by
// the goroutine that brings the answer, and must not block.
package client
