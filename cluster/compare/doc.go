// Package compare finds replicas whose state differs from that of the other replicas of their partition.
//
// Package cluster runs the loop of a [Comparer], which compares rolling digests at checkpoints for all
// partitions that this member leads, and passes the requests of other members to it. Operators ask
// for a comparison of whole states with Verify. The package decides which replicas stop; it does not
// repair or replace any.
//
// Invariants:
//
//   - A replica is halted only when a majority of all voters agrees on another state. Without a majority
//     no replica stops.
//   - A replica that is told that it differs compares for itself before it stops.
package compare
