// Package journal is the append-only log that all Raft groups of a member share: one write and one sync of the
// disk for all entries that are appended together, whichever groups they belong to.
//
// Package raftlog gathers the appends of the groups, gives them to [Journal.Append], and keeps the small values of
// the groups and the catalog of segments ([Catalog]) in raft-boltdb. The journal knows nothing of raft: it
// stores an [Entry] by group and index. DESIGN.md describes the format.
//
// Invariants:
//
//   - Append and DeleteRange return after the disk was synced. A crash leaves all or nothing of each.
//   - At most one batch is not synced at any time, and it is the newest. Each batch says up to where the journal
//     was synced before it: a bad batch below that is damage and is never cut.
//   - Segments are freed from the oldest on, so the record of a deletion outlives the entries that it deletes.
//   - The entries of a group have no hole, and a group of which entries may be missing is known (Damage).
//   - After any error other than a full disk the journal accepts no more writes.
package journal
