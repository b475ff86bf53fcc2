package compare

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// VerifyRequest asks the leader of a partition to compare its replicas.
type VerifyRequest struct {
	Partition fsm.PartitionID `json:"Partition"`
}

// Verification is the state of all replicas of a partition, voters or not, at one index.
type Verification struct {
	Partition fsm.PartitionID   `json:"Partition"`
	Index     uint64            `json:"Index"`
	Replicas  []VerifiedReplica `json:"Replicas"` // by name
}

// VerifiedReplica is the answer of one replica.
type VerifiedReplica struct {
	Member  fsm.MemberID `json:"Member"`
	Replica string       `json:"Replica"` // its name in raft
	Digest  uint64       `json:"Digest"`
	Failed  string       `json:"Failed"` // why there is no digest; "": there is one
}

// Equal reports whether all replicas have answered with the same digest.
func (v *Verification) Equal() bool {
	return len(v.Replicas) > 0 && !slices.ContainsFunc(v.Replicas, func(r VerifiedReplica) bool {
		return r.Failed != "" || r.Digest != v.Replicas[0].Digest
	})
}

// Verify compares the replicas of a partition that this member leads. Errors wrap partition.ErrNotLeader
// or an fsm.Code.
func (c *Comparer) Verify(ctx context.Context, request VerifyRequest) (v Verification, err error) {
	group := c.Groups()[request.Partition]
	if group == nil {
		return v, partition.ErrNotLeader
	}
	found, err := group.Verify(ctx, func(ctx context.Context, member fsm.MemberID, index uint64) (uint64, error) {
		digest, err := c.Members.Digest(ctx, member, DigestRequest{Partition: request.Partition, Index: index})
		if errors.Is(err, fsm.Stale) {
			err = partition.ErrPassed
		}
		return digest, err
	})
	if err != nil {
		return v, err
	}
	v = Verification{Partition: request.Partition, Index: found.Index}
	for name, digest := range found.Digests {
		v.Replicas = append(v.Replicas, VerifiedReplica{Member: raftgroup.ReplicaMember(name), Replica: name, Digest: digest})
	}
	for name, reason := range found.Missing {
		v.Replicas = append(v.Replicas, VerifiedReplica{Member: raftgroup.ReplicaMember(name), Replica: name, Failed: reason.Error()})
	}
	slices.SortFunc(v.Replicas, func(a, b VerifiedReplica) int { return cmp.Compare(a.Replica, b.Replica) })
	return v, nil
}

// AnswerDigest answers a DigestRequest of another member.
func (c *Comparer) AnswerDigest(ctx context.Context, request DigestRequest) (uint64, error) {
	group, err := c.openGroup(request.Partition)
	if err != nil {
		return 0, err
	}
	digest, err := group.DigestAt(ctx, request.Index)
	if errors.Is(err, partition.ErrPassed) {
		err = fsm.Stale
	}
	return digest, err
}
