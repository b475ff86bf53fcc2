package api

import (
	"cmp"
	"slices"
	"time"

	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Conditions is the answer of GET /v1/conditions.
type Conditions struct {
	Conditions condition.Findings `json:"conditions"` // the most severe first
}

// Member is a process of the cluster as GET /v1/members shows it: its recorded settings, and its state as the answering
// member sees it.
type Member struct {
	topology.Member
	Zone    string `json:"zone"`
	Weight  uint32 `json:"weight"`  // its share of replicas, 1 to 100
	Removed bool   `json:"removed"` // permanently
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

// MemberForce is the body of POST /v1/members/{member}/drain and remove.
type MemberForce struct {
	// Force accepts that partitions would be one failure from standing still (AtRisk).
	Force bool `json:"force,omitempty"`
}

// AtRisk returns the partitions that a living member holds together with a dead one, and the names of those dead members: without
// the member these partitions would be one failure from standing still, or have no quorum already. It returns nothing for a member
// that is not alive.
func AtRisk(st topology.Status, id fsm.MemberID) (partitions []fsm.PartitionID, dead []string) {
	away := make(map[fsm.MemberID]string)
	for _, m := range st.Members {
		if m.State == topology.Dead {
			away[m.ID] = cmp.Or(m.Name, string(m.ID))
		}
	}
	if _, isDead := away[id]; isDead {
		return nil, nil
	}
	for _, p := range st.Partitions {
		if !slices.Contains(p.Replicas, id) {
			continue
		}
		isAtRisk := false
		for _, holder := range p.Replicas {
			if name, isDead := away[holder]; isDead {
				isAtRisk = true
				dead = append(dead, name)
			}
		}
		if isAtRisk {
			partitions = append(partitions, p.ID)
		}
	}
	slices.Sort(dead)
	return partitions, slices.Compact(dead)
}

// MemberReplacement is the body of POST /v1/members/{member}/replace.
type MemberReplacement struct {
	With string `json:"with"` // name or id of the member that gets all replicas
	MemberForce
}

// Limits of notes.
const (
	NoteBytesMax       = 1024 // bytes of the text of a note
	NoteSourceBytesMax = 32
)

// Note is the body of POST /v1/notes: a text for the log of the member that answers.
type Note struct {
	Source string `json:"source"` // the program that reports, at most 32 bytes
	Text   string `json:"text"`   // 1 to NoteBytesMax bytes
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

// ConfirmedTime is the result of POST /v1/confirm-time: by how much wall time moves.
type ConfirmedTime struct {
	Step time.Duration `json:"stepNs"`
}

// FormatLevelRequest is the body of PUT /v1/format-level: the level above which the cluster does not rise; 0, or no body,
// for none.
type FormatLevelRequest struct {
	Max uint32 `json:"max"`
}

// Plan is the answer of GET /v1/rebalance, and the body of POST /v1/rebalance. Without a body, or with no moves, POST
// records the moves that GET returns.
type Plan struct {
	Moves []topology.PlannedMove `json:"moves"`
}

// Moves is the answer of GET /v1/moves, by partition.
type Moves struct {
	Moves []topology.Move `json:"moves"`
}
