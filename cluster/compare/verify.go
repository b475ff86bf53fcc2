package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// VerifyRequest asks the leader of a partition to compare its replicas.
type VerifyRequest struct {
	Partition fsm.PartitionID `json:"Partition"`
}

// Verify compares the replicas of a partition that this member leads. Errors wrap partition.ErrNotLeader
// or an fsm.Code.
func (c *Comparer) Verify(ctx context.Context, request VerifyRequest) (v topology.Verification, err error) {
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
	v = topology.Verification{Partition: request.Partition, Index: found.Index}
	add := func(name, digest, reason string) {
		v.Replicas = append(v.Replicas, topology.VerifiedReplica{Member: raftgroup.ReplicaMember(name), Replica: name, Digest: digest, Error: reason})
	}
	for name, digest := range found.Digests {
		add(name, fmt.Sprintf("%016x", digest), "")
	}
	for name, reason := range found.Missing {
		add(name, "", reason.Error())
	}
	slices.SortFunc(v.Replicas, func(a, b topology.VerifiedReplica) int { return cmp.Compare(a.Replica, b.Replica) })
	v.Equal = areEqual(v.Replicas)
	return v, nil
}

// areEqual reports whether all replicas have answered with the same digest.
func areEqual(replicas []topology.VerifiedReplica) bool {
	return len(replicas) > 0 && !slices.ContainsFunc(replicas, func(r topology.VerifiedReplica) bool {
		return r.Error != "" || r.Digest != replicas[0].Digest
	})
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
