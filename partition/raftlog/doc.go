// Package raftlog stores the Raft logs of all groups of a member: the entries in a journal (package journal), terms and
// votes in a raft-boltdb file beside it. A log of the kind Bolt has everything in that file; it is the reference for the journal.
//
// Package partition opens a [Log] for each member and gives the [Group] of a partition to raft as its
// log store and stable store. The package does not run raft and does not interpret entries.
//
// Invariants:
//
//   - StoreLogs returns after the entries are on disk, except for commands of a leader, for which AwaitStored and Stored
//     say what is on disk (behind.go). Concurrent appends share a transaction.
//   - The entries of a group have no hole, also after a crash during an append or a deletion.
//   - Term and candidate of a vote are written as one value.
//   - After any error other than a full disk the log accepts no more writes, and every group that uses
//     it is told (OnFailure).
//   - With a journal, damage to the file is restored from its copy or refused, and changes no term or vote (copy.go).
//   - A range of the log belongs to one replica (Owner).
//
// Below are [Store] and the files that implement it: bolt.go, meta.go, copy.go, restore.go and values.go for the raft-boltdb file,
// journal_store.go for the journal. Above are [Log] and [Group], which know each other: write.go combines the writes of groups,
// behind.go counts those that raft does not wait for, and append.go, delete.go, reopen.go and stable.go implement what raft calls.
package raftlog
