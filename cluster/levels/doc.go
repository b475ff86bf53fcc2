// Package levels keeps the format level of the cluster: the formats and commands that every member can read, and so may be
// written (fsm.FormatLevel). Package cluster makes one [Levels] per member, adopts the level of each catalog that it follows,
// and has the leader of the catalog raise it.
//
//	every member can read it ─► the catalog's leader raises the level ─► members adopt it ─► leaders raise their partitions
//
// Invariants:
//
//   - The level of the cluster only rises, and only to what every member can read.
//   - A member records a level in its data folder before it writes anything of that level. A binary that can read less
//     opens nothing.
//
// The package may not import package cluster.
package levels
