// Package raftgroup holds what all parts of a cluster agree on about the Raft groups of partitions: the
// names of replicas, the state machine of each group, and the form in which a replica reports its status.
//
// Package cluster and the packages below it use it. The package opens no group and asks no member.
//
// Invariants:
//
//   - The name of a replica contains its member and its number, and is never given to another replica.
//   - Partition 0 has the state machine of the catalog, every other partition that of message queues.
package raftgroup
