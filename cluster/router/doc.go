// Package router sends the requests of the gateways to the leader of their partition and retries
// until there is an answer.
//
//	gateways ─► Router ─► partitionClient (one per partition) ─► this member's replica
//	                        │                               └──► rpc.Conn ─► the leader's replica
//	                        └── findLeader: which member leads?
//
// Package cluster makes one Router per member and gives it a Transport; the AMQP gateway and the
// control API use it. The router does not know gossip, placement or moves: it learns from its Transport
// which members may lead, and accepts a leader only when that member itself says that it leads.
//
// Invariants:
//
//   - A request has one header for its whole life, so the state machine performs it at most once;
//     the partition client submits it until it is Done, so it is performed at least once, or the
//     caller gets ServerBusy (certainly not done) or Timeout (perhaps done).
//   - A receiver has at most one Lock outstanding: it gets the messages that were locked for it, whichever
//     leader answers.
//   - A partitioned entity is many entities of the state machines; only this package and the catalog
//     know that they are one. A key is always in the same shard.
//   - No lock is held while a replica, a connection or a function of the caller is called.
package router
