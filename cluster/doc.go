// Package cluster implements a member of the cluster. A [Node] opens the replicas that the catalog places on
// its member, elects and moves leaders, and connects the router with the replicas of this and of other members.
// An [Operator] executes the operators' commands: members, moves, verification and backups.
//
//	gateways ─► router ─► client ─► rpc ─► other members        requests to the leader of a partition
//	                            └──► replicas of this member
//
// The packages below this one do the parts of the work:
//
//	backup      copies of partitions, and restoring a data folder from them
//	bootstrap   the first start: joins a cluster, or forms one with other members without data
//	client      sends requests to the leaders of partitions, and retries
//	clocks      compares the clocks of members, and finds those that are wrong
//	compare     finds replicas whose state differs from the others
//	confirm     tells whether this member's replica of the catalog may be believed
//	datadir     the data folder: identity, lock, places of log and replicas
//	entities    creates, changes and deletes entities and namespaces
//	forwarding  moves messages between entities
//	gossip      the list of members and their addresses
//	health      checks whether this member is ready and alive
//	levels      keeps the format level of the cluster: what every member can read
//	move        moves partitions, transfers leaderships, drains and removes members, and rebalances
//	notify      wakes goroutines that wait for a change
//	peer        the peer port: one TCP or TLS stream per purpose
//	placement   computes which members hold and lead which partitions
//	query       declares queries to the leaders of partitions, and answers them
//	quota       divides memory and disks among namespaces
//	raftgroup   names, state machines and status of the raft groups
//	rates       samples what happens to the messages of the busiest entities
//	reconcile   does the work of leaders: founds the cluster, adds members, maintains the voters of the catalog
//	replicas    opens and removes the replicas of this member, and replaces damaged ones
//	router      performs the operations of the gateways on entities, also on shards
//	rpc         requests and queries between members
//	shards      which shard of a partitioned entity a message belongs to
//	slowdisk    moves leaderships away from a member whose disk is slow
//	space       limits the effect of full disks and memory
//	starts      tells the starts of a member apart, to find copied data folders
//	throttle    limits how often events that peers can cause are logged
//
// The loops of a Node are in this package: catalogLoop follows the catalog and has replicas opened and retired, and clockLoop
// reacts to a wrong clock of this member.
//
// Package cmd/peeklock opens a Node per member, gives its Router to the gateway and the control API,
// and its Operator to the operators' commands. The package does not store messages (package partition),
// decide about them (package fsm) or speak a protocol of clients (packages amqp and admin).
//
// Invariants:
//
//   - Two bootstraps that were both decided share no member. A member that holds data never bootstraps
//     another cluster.
//   - A replica is removed only after the catalog's record no longer contains it, and created only when
//     the catalog's leader confirms it. Its files are deleted only when its group has removed it.
//   - The format level of the cluster only rises, and only to what every member can read. A binary that
//     can read less opens nothing.
//   - Gossip is an address book and a hint about which members are alive. Nothing that must be right
//     depends on it.
//   - No lock is held while a group, a connection or a function of the caller is called.
//
// The invariants of requests, forwarding and partitioned entities are those of packages router,
// forwarding and shards.
package cluster
