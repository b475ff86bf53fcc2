// Package digest computes the rolling digest of a replica, a hash over all entries that it has applied and over their results,
// and compares the digests of replicas at common indexes. It knows no group: package partition calls it for each entry,
// and package snapshots stores its state.
//
// A [Rolling] belongs to the holder of the machine's lock; its checkpoints may be read concurrently.
package digest
