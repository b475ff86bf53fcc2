// Package stamp computes the two times that a leader writes into entries: serving time, which passes only while the partition
// has a leader, and wall time, the time of day as far as a quorum of members confirms it. The section "Two times" of
// partition/DESIGN.md has the reasons.
//
// Package partition reads the clocks and decides when an entry is due.
//
// Invariants:
//
//   - No time goes back during a leadership, and none begins before that of the newest entry.
//   - A single clock moves wall time by at most ErrorMax away from the median of the members' clocks.
package stamp
