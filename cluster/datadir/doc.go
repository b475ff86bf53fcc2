// Package datadir keeps the data folder of a member: its identity, the lock that keeps a second
// process out, and the places of the log and of the replicas.
//
//	member.json                identity, generated once
//	peers.json                 the newest start that was seen of each other member
//	lock                       held by the running process
//	raft.db                    the log of all replicas (partition.OpenLog)
//	raft.db.copy               what raft.db holds beside entries, with checksums, if the entries are in a journal
//	journal/                   the entries of that log, if member.json names a journal
//	groups/<partition>.<n>/    replica n of a partition
//	removed/                   the same of the last removed member whose folder a new one took over
//
// Package cluster opens the folder of its member, packages bootstrap and backup record in it what they
// decide, and the command line sets the data of a removed member aside. The package
// does not read or write the log and the replicas.
//
// Invariants:
//
//   - member.json is replaced atomically and synced: a crash leaves the old or the new one.
//   - A folder that has a log and no identity is refused, and so is one that belongs to a cluster and
//     has no log: an empty replica under a known id could vote twice in one term.
//   - member.json names a journal before anything of the journal is written, and until nothing of it is needed any more.
//   - The folder of a removed member opens no more, and one whose identity another process has only after an operator has accepted it.
//   - A start is in member.json before any other member learns of it: there and not among the values of raft.db, because it is needed
//     before the log opens, and whoever copies or restores one of the two files without the other is found by raft.db.copy.
package datadir
