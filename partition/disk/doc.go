// Package disk is the file system of a member's data ([FS]), and watches its free space.
//
// Packages partition and cluster reach files only through [FS], which test/arch checks: [OS] is the operating
// system, and a simulation puts a file system in its place that loses what was not synced.
//
// Package raftlog owns the [Monitor] of a member; packages partition, raftlog and bodystore report
// full disks to it and use the file helpers. The package decides nothing about commands: partition
// asks [Monitor.RefusesGrowth] before it accepts one.
//
// Invariants:
//
//   - A member whose free space falls below the reserve stays read-only until clearly more is free.
//   - The ballast is deleted only after a write has failed for lack of space, once, and is created
//     again only when there is space beyond the reserve.
//   - Unknown free space is no reason to refuse commands.
//   - A shortage of file descriptors is no lack of space and no damage: what needs a file waits.
package disk
