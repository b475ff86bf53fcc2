// Package writebehind is a model of a Raft group whose leader sends entries to its followers while it writes them itself
// (partition/raftlog/behind.go). hashicorp/raft 1.7.3 counts the leader as one of the quorum as soon as StoreLogs returns, which is before
// the entries are on its disk; the guards of docs/raft-notes.md and partition/DESIGN.md make up for that.
//
// A step is an election by one quorum, a command, the write of one entry behind raft, a write that fails, a loss of power,
// the replication of one entry or of the commit index to one replica, a commit, or that a state machine applies an entry. A replica that
// was reopened or has lost power goes on with what its disk holds. The group keeps its promise if no two replicas apply different
// entries at one index.
//
// Each field of [Guards] is a guard that the model can leave out.
package writebehind
