// Package move changes which members hold and lead the partitions of a cluster: it moves replicas, transfers
// leaderships, drains, removes and replaces members, and rebalances.
//
//	Operator   records in the catalog what is wanted: the target of a partition, a member that is drained
//	Balancer   does the same without an operator, at the leader of the catalog
//	Mover      at the leader of a partition: executes one step after another until the group is as wanted
//
// Package cluster makes one of each per member, gives them a [Node] and a [Router], and calls Mover and Balancer
// from its reconciler. The operators' commands reach Operator through cluster.Operator. The package does not
// compute placements (package placement), does not open replicas or remove their files (package replicas), and
// remembers nothing that the next leader would need.
//
// Invariants:
//
//   - The next step of a move follows from the catalog's record and the configuration of the group alone.
//   - All replicas of the target vote before a replica of the former placement is removed.
//   - A voter is removed only while a majority of the remaining voters is alive and knows the newest
//     configuration, and stores what the leader sends, unless no majority of all voters does.
//   - Each step begins with asking the catalog's leader for the record.
//   - No lock is held while a group, the node or the router is called.
package move
