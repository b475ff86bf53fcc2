// Package cluster finds: which member holds what, and brings a command there.
//
//	gateways ──► Router ──► line (one per partition) ──► this member's group
//	                          │                     └──► forward connection ──► the leader's group
//	                          └── seek: who leads?
//	Node: gossip (who is here) · peers (one port: raft and forward streams) ·
//	      founder (first start) · catalogLoop (opens replicas) · reconcileLoop (leaders) ·
//	      forwarder (forwards messages between entities) · mover (brings partitions elsewhere) ·
//	      retire (removes replicas that are none any more)
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
//   - What is forwarded arrives once: the machines at both ends know how far a batch has
//     come, the forwarder only moves it on.
//   - A partitioned entity is many entities of the machines; that they are one is known here
//     (shard.go) and in the catalog only. A key is in the same shard for ever.
//   - Two foundings that were both decided share no member (bootstrap.go). A member that
//     holds data never founds.
//   - A replica is removed only after the catalog has forgotten it, made only when the
//     catalog's leader confirms it, and its files go only when its group is without it.
//   - The level of the cluster only rises, and only to what every member knows. A binary that knows
//     less opens nothing.
//   - Gossip is an address book and a hint of who is alive. Nothing that must be right
//     is decided by it.
//   - No lock is held while a group, a connection or a caller's function is called.
package cluster
