// Package backup copies a partition from its leader into a stream, and makes the data folder of a new
// member out of such copies.
//
// Package cluster runs a [Server] for the backup streams of other members and of itself, and opens
// such streams with [Read]; the command line calls [Restore] while no member runs. The package finds
// no leader and stores nothing outside of a data folder: where copies are kept is decided by cmd/objects.
//
// A stream is one byte from the leader and, behind the byte that accepts, the backup as
// partition.Group.Backup writes it, to the end of the stream.
//
// Invariants:
//
//   - The backup itself contains what shows that it is complete: a stream that breaks off leaves
//     something that Restore refuses.
//   - No replica is closed while it is copied: a Server runs its copies as tasks of the node.
//   - A restored folder gets its identity last. Until then no member starts in it.
package backup
