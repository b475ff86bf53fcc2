// Package disk watches the free space of a member's file system and makes files durable.
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
package disk
