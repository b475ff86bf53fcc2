// Package cluster joins the parts of a member: a Node opens the replicas that the catalog places on it,
// elects and moves leaders, and connects the router with the replicas of this and of other members.
//
//	gateways ─► router ─► rpc ─► other members        requests to the leader of a partition
//	                 └──► replicas of this member
//	Node: gossip (members, addresses) · peer (one port for all streams) · bootstrap (first start) ·
//	      catalogLoop (opens replicas) · reconcileLoop (leaders) · forwarding (messages between
//	      entities) · moves (replicas to other members) · retire (removed replicas)
//
// Package cmd/peeklock opens a Node per member, gives its Router to the gateway and the control API,
// and its Operator to the operators' commands. The package does not store messages (package partition),
// decide about them (package fsm) or speak a protocol of clients (packages amqp and admin).
//
// Invariants:
//
//   - Two bootstraps that were both decided share no member. A member that holds data never starts
//     another cluster.
//   - A replica is removed only after the catalog has forgotten it and created only when the
//     catalog's leader confirms it; its files are deleted only when its group is without it.
//   - The feature level of the cluster only rises, and only to what every member can read. A binary that
//     can read less opens nothing.
//   - Gossip is an address book and a hint about which members are alive. Nothing that must be right
//     depends on it.
//   - No lock is held while a group, a connection or a function of the caller is called.
//
// The invariants of requests, forwarding and partitioned entities are those of packages router,
// forwarding and shards.
package cluster
