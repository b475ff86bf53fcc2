package admin

import "github.com/peeklock/peeklock/fsm"

// Member is a process of the cluster as GET /v1/members shows it: what is recorded of it, and
// what the answering member sees.
type Member struct {
	MemberStatus
	Zone    string `json:"zone"`
	Weight  uint32 `json:"weight"`  // its share of replicas, 1 to 100
	Drained bool   `json:"drained"` // leads nothing and gets no further replicas
	Removed bool   `json:"removed"` // gone for good
}

// Members is the answer of GET /v1/members, by name.
type Members struct {
	Members []Member `json:"members"`
}

// MemberChange is the body of PATCH /v1/members/{member}; what is nil stays.
type MemberChange struct {
	Zone   *string `json:"zone,omitempty"`   // at most 64 bytes
	Weight *uint32 `json:"weight,omitempty"` // 1 to 100
}

// MemberReplacement is the body of POST /v1/members/{member}/replace.
type MemberReplacement struct {
	With string `json:"with"` // name or id of the member that gets all replicas
}

// MoveRequest is the body of POST /v1/partitions/{id}/move.
type MoveRequest struct {
	Members []string `json:"members"` // names or ids, the preferred leader first
}

// TransferRequest is the body of POST /v1/partitions/{id}/transfer.
type TransferRequest struct {
	To string `json:"to"` // name or id of the next leader
}

// GrowRequest is the body of POST /v1/partitions: how many partitions more.
type GrowRequest struct {
	Add int `json:"add"`
}

// GrowResult is its answer: how many there are.
type GrowResult struct {
	Partitions int `json:"partitions"`
}

// PlannedMove is a partition that a rebalancing would move.
type PlannedMove struct {
	Partition  fsm.PartitionID `json:"partition"`
	From       []fsm.MemberID  `json:"from"` // the preferred leader first
	To         []fsm.MemberID  `json:"to"`
	Bytes      int64           `json:"bytes"`      // to copy, about; 0 when not known
	LeaderOnly bool            `json:"leaderOnly"` // the replicas stay where they are
}

// Plan is the answer of GET /v1/rebalance, and the body of POST /v1/rebalance: without one,
// or with no moves, what GET would say is done.
type Plan struct {
	Moves []PlannedMove `json:"moves"`
}

// Move is a partition that does not lie where it shall.
type Move struct {
	Partition fsm.PartitionID `json:"partition"`
	From      []fsm.MemberID  `json:"from"`
	To        []fsm.MemberID  `json:"to"`
	State     string          `json:"state"` // waiting, adding, catching up, handing over, removing, paused
	Copied    int64           `json:"copied"`
	Bytes     int64           `json:"bytes"` // to copy to the replica that is filled now; 0 when not known
}

// Moves is the answer of GET /v1/moves, by partition.
type Moves struct {
	Moves []Move `json:"moves"`
}

// VerifiedReplica is what one replica answered.
type VerifiedReplica struct {
	Member  fsm.MemberID `json:"member"`
	Replica string       `json:"replica"`
	Digest  string       `json:"digest,omitempty"` // of its whole state, 16 hexadecimal digits
	Error   string       `json:"error,omitempty"`  // why there is none
}

// VerifyResult is the answer of GET /v1/verify/{partition}: the state of every replica at one index.
type VerifyResult struct {
	Partition fsm.PartitionID   `json:"partition"`
	Index     uint64            `json:"index"`
	Replicas  []VerifiedReplica `json:"replicas"`
	Equal     bool              `json:"equal"` // all have answered, and the same
}
