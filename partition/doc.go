// Package partition keeps one machine of package fsm alive on several members: each
// [Group] is one replica of one raft group.
//
// The way of a command, at the leader and at a follower:
//
//	Submit, Lock ─> queue, lines ─> compose ─> raft.Apply ─> log (fsync) ─> followers
//	                                                            │ quorum
//	Done <─ settle <─ flush bodies <─ machine.Apply <─ ApplyBatch   on every replica
//
// What lies where:
//
//	log       one raft-boltdb file of the member, shared by all its groups   log.go, grouplog.go, cache.go
//	bodies    append-only segment files of the replica                       bodies.go, segment.go, compact.go
//	index     in memory, in the machine                                      package fsm
//	snapshot  image of the index, the sizes of the segments, raft's metadata snapshot.go, stream.go
//	backup    image and live bodies, wherever somebody keeps it              backup.go, restore.go
//
// Invariants:
//
//   - An answer Done is given after a quorum has the entry on disk and this replica has
//     applied it. Refused is given only for what never came into the log. Everything
//     else is Unknown, and asking again with the same Header is safe.
//   - A replica that meets bytes it does not know, a bad checksum or a disk that fails
//     stops, alone and loudly ([Status].Halted). It skips nothing, cuts nothing, and
//     leaves its bytes as they are.
//   - A segment is removed only when the machine refers to nothing in it, no snapshot on
//     disk refers to it, and no delivery still reads from it.
//   - The log begins no later than one behind the newest snapshot.
//   - Entry bytes that raft holds are never changed; commands given to Submit neither.
//   - What waits is bounded: the queue by count and bytes, entries in flight, lock
//     requests, lines, lanes, streams, cached entries, deliveries being read.
//   - A range of the log belongs to one replica, which its folder names too; neither is used
//     without the other.
//   - A replica that differs from a majority of all voters stops when it is told, and no
//     other does.
//   - A disk without room costs the replica its part in the group for a while, and no data.
//
// Goroutines of a group, besides raft's own: one that follows leadership (instance.go),
// one that composes entries (prepare.go), one that reads bodies (effect.go), one that
// takes snapshots and compacts (keeper.go). The log has one that looks at the disk (space.go).
package partition
