package raftgroup

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// indexBytesPerMessage is about what the index of one message takes in a copy.
const indexBytesPerMessage = 200

// Status is what a member reports about one of its replicas when it is asked. Members of neighbouring
// releases send it to each other.
type Status struct {
	IsLeader bool         `json:"Leads"`
	Leader   fsm.MemberID `json:"Leader"` // as far as the replica knows; may be empty
	Term     uint64       `json:"Term"`
	Applied  uint64       `json:"Applied"` // index of the last applied entry
	Entities int          `json:"Entities"`
	Messages uint64       `json:"Messages"`
	Halted   bool         `json:"Halted"` // the replica has stopped for good
	// Transferring and Catalog are for draining, of a leader: whether a leadership transfer is under way, and
	// the index that the answering member has applied of the catalog; 0: not reported.
	Transferring bool   `json:"HandingOver,omitempty"`
	Catalog      uint64 `json:"Catalog,omitempty"`
	// The rest is for moves.
	Replica   string            `json:"Replica"` // name of the replica in raft
	Commit    uint64            `json:"Commit"`
	Live      int64             `json:"Live"`    // bytes of bodies that the state machine refers to
	Removed   bool              `json:"Removed"` // the group has removed the replica
	Voters    []partition.Voter `json:"Voters"`
	Nonvoters []partition.Voter `json:"Nonvoters"`
	// Last is the index of the last entry of its log.
	Last uint64 `json:"Last,omitempty"`
	// OldestWrite and WriteMedian are the latency of the log of the member, see [partition.LogLatency].
	OldestWrite time.Duration `json:"OldestWrite,omitempty"`
	WriteMedian time.Duration `json:"WriteMedian,omitempty"`
	// Uncommitted is set when Voters and Nonvoters are those of a change that is not committed yet.
	Uncommitted bool `json:"Uncommitted,omitempty"`
}

// CopyBytes estimates the size of a copy of the partition, in bytes.
func (s *Status) CopyBytes() int64 { return s.Live + int64(s.Messages)*indexBytesPerMessage }

// The limits of a disk that is not slow.
const (
	OldestWriteMax = time.Second            // age of a write to the log
	WriteMedianMax = 100 * time.Millisecond // of the writes to the log
	oldestWriteRel = 20                     // times the median of other members: a write that begins a file takes many accesses
	writeMedianRel = 10                     // times the median of other members
)

// HasSlowDisk reports whether the disk of the member is slow compared with one with that median, which may be 0: it hangs, or writes
// take more than 100 ms and ten times as long.
func (s *Status) HasSlowDisk(median time.Duration) bool {
	return s.IsHung(median) || s.WriteMedian > max(WriteMedianMax, writeMedianRel*median)
}

// IsHung reports whether a write has not returned for a second and twenty times as long as writes take elsewhere, which may be 0.
func (s *Status) IsHung(elsewhere time.Duration) bool {
	return s.OldestWrite > max(OldestWriteMax, oldestWriteRel*elsewhere)
}
