// Package partition replicates a state machine of package fsm over several members: each [Group] is
// one replica of one Raft group. It takes encoded commands, has a quorum write them to disk in one
// order, applies them on every replica, and answers the callers at the leader.
//
// Package cluster opens the [Log] and the groups of a member, submits commands, and adds and removes
// replicas. The package does not know what a command means, which members should hold a partition, or
// which member leads one: callers ask a replica, and [Refused] sends them on.
// Nothing above it sees raft, raft-boltdb or bbolt.
//
// The path of a command at the leader and on every replica:
//
//	Submit, Lock ─> submissions, wait queues ─> compose ─> raft.Apply ─> log (fsync) ─> followers
//	                                                                        │ quorum
//	Done <─ settle <─ flush bodies <─ machine.Apply <─ ApplyBatch           on every replica
//
// Where the state of a replica is stored:
//
//	log       a journal, and a raft-boltdb file for terms and votes, both    package raftlog
//	          shared by all groups of the member
//	bodies    append-only segment files of the replica                       package bodystore
//	index     in memory, in the machine                                      package fsm
//	snapshot  image of the index, sizes of the segments, raft's metadata     package snapshots
//	backup    image and live bodies, written to the caller's stream          backup.go, restore.go
//
// Invariants:
//
//   - Done is answered after a quorum has the entry on disk and this replica has applied it. Refused
//     is answered only for a command that never entered the log. Every other end is Unknown, and the
//     caller may submit the command again with the same Header.
//   - A replica that meets unknown bytes, a bad checksum or a failing disk stops and logs an error
//     ([Status].Halted). It skips nothing, truncates nothing, and leaves its bytes as they are.
//   - A segment is deleted only when the machine refers to nothing in it, no snapshot on disk lists
//     it, and no delivery reads from it.
//   - The log begins at most one index behind the end of the newest snapshot.
//   - Entry bytes that raft holds are never changed, nor are commands given to Submit.
//   - Everything that waits is bounded: submissions by count and bytes, entries in flight, lock
//     requests, wait queues, receiver ids, streams, cached entries, deliveries being read.
//   - A range of the log belongs to one replica, which the replica's folder names too; neither is
//     used without the other.
//   - A replica that differs from a majority of all voters stops when it is told to, and no other
//     replica does.
//   - A full disk costs the replica its part in the group for a while, and no data.
//
// Goroutines of a group, besides raft's own: one that follows leadership (leadership.go), one that
// campaigns (campaign.go), one that composes entries (propose.go), one that reads bodies
// (body_reader.go), one that takes snapshots and compacts (snapshotter.go). The log has one that
// measures the disk (package disk).
package partition
