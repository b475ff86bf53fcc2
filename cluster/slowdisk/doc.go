// Package slowdisk moves leaderships away from a member whose disk hangs, or is much slower than the disks of the other voters.
// Package cluster makes one [Monitor] per member.
//
// Every send waits for the disk of its leader. Raft notices a slow disk on a follower only, by the quorum that does not wait for it;
// a leader whose disk hangs goes on sending heartbeats, and leads.
//
// Invariants:
//
//   - A leadership moves only to a member that has just answered that its own disk is well, and only if so many voters did that they
//     are a quorum without this member. If all disks are slow, nothing moves.
//   - A write that hangs moves it at once. Writes that are slow move it when the others have been faster for 5 s.
//   - A group is handed over at most once in 30 s.
//   - Nothing is decided by this package alone: the successor campaigns, and wins by the rules of Raft.
//
// The package may not import package cluster. No lock is held while a group is called or a member is asked.
package slowdisk
