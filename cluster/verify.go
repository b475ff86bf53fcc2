package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// What queries about digests ask and answer.
type (
	// digestQuery asks a replica for the digest of its state at an index. Stale: it has
	// passed that.
	digestQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
		Index     uint64          `json:"Index"`
	}
	// verifyQuery asks the leader of a partition to compare its replicas.
	verifyQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
	}
)

// Verification is the state of all replicas of a partition, voters or not, at one index.
type Verification struct {
	Partition fsm.PartitionID   `json:"Partition"`
	Index     uint64            `json:"Index"`
	Replicas  []VerifiedReplica `json:"Replicas"` // by name
}

// VerifiedReplica is what one replica answered.
type VerifiedReplica struct {
	Member  fsm.MemberID `json:"Member"`
	Replica string       `json:"Replica"` // its name in raft
	Digest  uint64       `json:"Digest"`
	Failed  string       `json:"Failed"` // why there is no digest; "": there is
}

// Equal says whether all have answered, and the same.
func (v *Verification) Equal() bool {
	return len(v.Replicas) > 0 && !slices.ContainsFunc(v.Replicas, func(r VerifiedReplica) bool {
		return r.Failed != "" || r.Digest != v.Replicas[0].Digest
	})
}

// Verify has the leader of a partition compare the whole state of all replicas at an index
// that all of them reach, 0 being the catalog. It costs each as much as writing a snapshot, and
// holds nobody up. Replicas on binaries of different releases may differ without harm.
// Errors wrap EntityNotFound, ServerBusy (no leader) or Timeout.
func (o *Operator) Verify(ctx context.Context, id fsm.PartitionID) (v Verification, err error) {
	arguments, err := json.Marshal(verifyQuery{Partition: id})
	if err == nil {
		err = o.atPlacedLeader(ctx, id, func(leader fsm.MemberID) error {
			reply, err := o.node.askNode(ctx, leader, rpc.QueryVerify, arguments)
			if err == nil {
				err = reply.Decode(&v)
			}
			return err
		})
	}
	if err != nil {
		return Verification{}, fmt.Errorf("verify partition %d: %w", id, err)
	}
	return v, nil
}

// askNode asks a member, which may be this one, what its node answers.
func (n *Node) askNode(ctx context.Context, member fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
	if member == n.self {
		return n.queries.Answer(ctx, kind, arguments), nil
	}
	return n.ask(ctx, member, kind, arguments)
}

// atPlacedLeader is atLeader for a partition of messages that may not be there.
func (o *Operator) atPlacedLeader(ctx context.Context, id fsm.PartitionID, call func(leader fsm.MemberID) error) error {
	if placed := o.node.partitions.Load(); placed == nil {
		return fmt.Errorf("the catalog is not loaded yet: %w", fsm.ServerBusy)
	} else if int64(id) > int64(len(*placed)) {
		return fmt.Errorf("%w: there are %d partitions", fsm.EntityNotFound, len(*placed))
	}
	return o.router.AtLeader(ctx, id, call)
}

// verify answers rpc.QueryVerify.
func (n *Node) verify(ctx context.Context, q verifyQuery) (v Verification, err error) {
	group := (*n.groups.Load())[q.Partition]
	if group == nil {
		return v, rpc.ErrNotLeader
	}
	found, err := group.Verify(ctx, func(ctx context.Context, member fsm.MemberID, index uint64) (uint64, error) {
		return n.askDigest(ctx, member, digestQuery{Partition: q.Partition, Index: index})
	})
	if err != nil {
		return v, err
	}
	v = Verification{Partition: q.Partition, Index: found.Index}
	for name, digest := range found.Digests {
		v.Replicas = append(v.Replicas, VerifiedReplica{Member: raftgroup.ReplicaMember(name), Replica: name, Digest: digest})
	}
	for name, reason := range found.Missing {
		v.Replicas = append(v.Replicas, VerifiedReplica{Member: raftgroup.ReplicaMember(name), Replica: name, Failed: reason.Error()})
	}
	slices.SortFunc(v.Replicas, func(a, b VerifiedReplica) int { return cmp.Compare(a.Replica, b.Replica) })
	return v, nil
}

func (n *Node) askDigest(ctx context.Context, member fsm.MemberID, q digestQuery) (digest uint64, err error) {
	arguments, err := json.Marshal(q)
	if err != nil {
		return 0, err
	}
	reply, err := n.ask(ctx, member, rpc.QueryDigest, arguments)
	if err == nil {
		err = reply.Decode(&digest)
	}
	if errors.Is(err, fsm.Stale) {
		err = partition.ErrPassed
	}
	return digest, err
}

// digest answers rpc.QueryDigest.
func (n *Node) digest(ctx context.Context, q digestQuery) (uint64, error) {
	group := (*n.groups.Load())[q.Partition]
	if group == nil {
		return 0, fmt.Errorf("no replica of partition %d is open here: %w", q.Partition, fsm.EntityNotFound)
	}
	digest, err := group.DigestAt(ctx, q.Index)
	if errors.Is(err, partition.ErrPassed) {
		err = fsm.Stale
	}
	return digest, err
}
