package topology

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The states of a Member.
const (
	Alive   = "alive"
	Dead    = "dead"    // expected to return: it stopped without a graceful leave, or has not been seen since
	Left    = "left"    // stopped gracefully
	Removed = "removed" // removed from the cluster for good
)

// Status is the state of the cluster as the answering member sees it.
type Status struct {
	ClusterID  string      `json:"clusterId"`
	Members    []Member    `json:"members"`
	Partitions []Partition `json:"partitions"` // the catalog first
	// FormatLevel is the level of the formats that members write, and FormatLevelMax the one at which an operator
	// holds it, 0 if it rises when all members can read the next one.
	FormatLevel    uint32 `json:"formatLevel"`
	FormatLevelMax uint32 `json:"formatLevelMax"`
	// TimeHeld is set while the clocks of the members have been set together by more than a minute, TimeStep, and wall
	// time does not follow them until they are right again or an operator confirms the time.
	TimeHeld bool          `json:"timeHeld"`
	TimeStep time.Duration `json:"timeStepNs"` // 0 if wall time is not held
}

// Member is the state of one process of the cluster.
type Member struct {
	ID      fsm.MemberID `json:"id"`
	Name    string       `json:"name"`
	State   string       `json:"state"`   // Alive, Dead, Left or Removed
	Version string       `json:"version"` // of the binary
	AMQP    string       `json:"amqp"`    // host:port for clients
	HTTP    string       `json:"http"`    // host:port of the control API
	Leads   int          `json:"leads"`   // partitions led
	Holds   int          `json:"holds"`   // replicas held
	// ReadOnly is set when its disk or its memory is nearly full: it accepts no new messages, leaderships and
	// replicas until there is space again.
	ReadOnly bool `json:"readOnly"`
	// Drained is set while the member leads no partition and gets no further replicas: an operator drained it, or
	// it is being removed.
	Drained bool `json:"drained"`
	// ClockOff is set when the answering member finds that its clock differs by more than 500 ms from the median
	// of the clocks of a quorum: it should not lead.
	ClockOff bool `json:"clockOff"`
}

// Partition is the state of one Raft group.
type Partition struct {
	ID       fsm.PartitionID `json:"id"`
	Leader   fsm.MemberID    `json:"leader"` // empty: unknown
	Term     uint64          `json:"term"`
	Applied  uint64          `json:"applied"`
	Replicas []fsm.MemberID  `json:"replicas"` // voters and non-voters, the preferred leader first
	Entities int             `json:"entities"`
	Messages uint64          `json:"messages"`
	Contact  time.Duration   `json:"contactNs"` // since the answering member has heard from the leader; 0 without a replica
}

// PlannedMove is a partition that would get other replicas or another preferred leader in a rebalance.
type PlannedMove struct {
	Partition fsm.PartitionID `json:"partition"`
	From      []fsm.MemberID  `json:"from"` // the preferred leader first
	To        []fsm.MemberID  `json:"to"`
	// Bytes estimates what must be copied: for each new replica the bodies and the index of the partition, as
	// its leader has them now. It is 0 if the leader did not answer.
	Bytes      int64 `json:"bytes"`
	LeaderOnly bool  `json:"leaderOnly"` // From and To have the same members
}

// The states of a move.
const (
	Waiting     = "waiting"      // for its turn, or for a member that is away
	Adding      = "adding"       // a replica is being opened and added
	CatchingUp  = "catching up"  // the new replica is being filled
	HandingOver = "handing over" // all replicas of the target have caught up; the leadership is being transferred
	Removing    = "removing"     // former replicas are being removed; the move can no longer be cancelled
	Paused      = "paused"
)

// Move is the progress of a partition whose replicas differ from its target.
type Move struct {
	Partition fsm.PartitionID `json:"partition"`
	From      []fsm.MemberID  `json:"from"`
	To        []fsm.MemberID  `json:"to"`
	State     string          `json:"state"`
	// Copied of Bytes have arrived at the replica that is being filled; both are 0 when that is not known.
	Copied int64 `json:"copied"`
	Bytes  int64 `json:"bytes"`
}

// Verification is the state of all replicas of a partition, voters or not, at one index of the log.
type Verification struct {
	Partition fsm.PartitionID   `json:"partition"`
	Index     uint64            `json:"index"`
	Replicas  []VerifiedReplica `json:"replicas"` // by name
	Equal     bool              `json:"equal"`    // all replicas have answered with the same digest
}

// VerifiedReplica is the answer of one replica.
type VerifiedReplica struct {
	Member  fsm.MemberID `json:"member"`
	Replica string       `json:"replica"`          // its name in raft
	Digest  string       `json:"digest,omitempty"` // of its whole state, 16 hexadecimal digits
	Error   string       `json:"error,omitempty"`  // why it has no digest
}
