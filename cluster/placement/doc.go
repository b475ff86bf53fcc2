// Package placement computes which members hold replicas of which partitions, and which of them
// should lead.
//
// Package cluster calls it for the bootstrap, for automatic moves and for the operator's rebalance,
// remove and grow commands. The package only decides: it moves no replica, asks no member and reads no clock.
//
// Invariants:
//
//   - All functions are pure; equal input gives equal output on every member.
//   - A replica's number is never given to another replica of the same partition.
//   - A computed placement is stable: computing again from it changes nothing.
package placement
