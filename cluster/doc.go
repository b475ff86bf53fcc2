// Package cluster finds: which member holds what, and brings a command there.
//
//	gateways ──► Router ──► line (one per partition) ──► this member's group
//	                          │                     └──► forward connection ──► the leader's group
//	                          └── seek: who leads?
//	Node: gossip (who is here) · peers (one port: raft and forward streams) ·
//	      founder (first start) · catalogLoop (opens replicas) · reconcileLoop (leaders)
//
// A gateway asks its own member and sees time pass, nothing else: leaders die, connections
// break, and the line asks again with the same bytes until the machine has answered.
//
// Invariants:
//
//   - A request has one header for its whole life, so the machine performs it at most once;
//     the line asks until it is Done, so it is performed at least once, or the caller
//     hears Timeout.
//   - A receiver has one Lock outstanding: what was locked for it is given to it, by
//     whichever leader answers.
//   - Two foundings that were both decided share no member (bootstrap.go). A member that
//     holds data never founds.
//   - Gossip is an address book and a hint of who is alive. Nothing that must be right
//     is decided by it.
//   - No lock is held while a group, a connection or a caller's function is called.
package cluster
