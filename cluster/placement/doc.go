// Package placement computes which members hold replicas of which partitions, and which of them
// should lead.
//
// Callers are the founding of a cluster, the reconciler of the catalog's leader and the operator's
// rebalance, drain and grow commands, all in package cluster. The package decides only: it moves no
// replica, asks no member and reads no clock.
//
// Invariants:
//
//   - All functions are pure; equal input gives equal output on every member.
//   - A replica's number is never given to another replica of the same partition.
//   - A computed placement is stable: computing again from it changes nothing.
package placement
