// Package bodystore stores the message bodies of a replica in append-only segment files.
//
// Package partition opens a [Store] for each replica and gives it to the machine as its fsm.Bodies; after
// every batch it lets the store write what has gathered. It freezes the store for snapshots and backups, and
// moves the live records of sparse segments. The package does not know what a body contains, nor which ones
// are needed: the machine releases them.
//
// Invariants:
//
//   - Appends are not synced: the raft log makes them durable. A snapshot syncs the segments that it
//     lists; after a crash they are truncated to their listed sizes, and the log is replayed.
//   - A segment is deleted only when it has no live records, no snapshot retains it, and no pin covers
//     it.
//   - Every record that is read has a checksum that was verified. A bad one is disk.ErrDamaged, which
//     stops the replica.
//   - Bodies wait in memory until there are enough for a write, and on a full disk, up to a bound.
package bodystore
