// Package reconcile does the work of leaders: it compares, for the groups that a member leads, the actual with the desired
// state and executes what is missing. Package cluster makes one [Reconciler] and one [IdleShards] per member.
//
//	leader of the catalog       founds the cluster, adds members, maintains the voters of the catalog, raises the format
//	                            level, rebalances, drops deleted entities
//	leader of a partition       reports that its group is formed, removes idle entities, moves its replicas and its leadership
//
// The steps of moves are those of package move. The package may not import package cluster.
//
// Invariants:
//
//   - The next leader may safely repeat each step.
//   - A process that only gossip lists becomes a member only when it confirms it directly.
//   - A replica is removed from a group only if the others have a quorum without it.
package reconcile
