package move

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// caughtUpLagMax is the number of entries that a replica may be behind its leader to get the leadership.
const caughtUpLagMax = 64

// errNoSuccessor means that no other voter can lead now.
var errNoSuccessor = errors.New("no other member is alive and caught up")

// TransferToHolder transfers the leadership to the first replica of the target, or else of the present
// placement, that is alive and has caught up. It prefers members that have free disk space.
func (m *Mover) TransferToHolder(ctx context.Context, part *fsm.Partition, group *partition.Group) error {
	err := m.transferToEligible(ctx, part, group, m.AcceptsLeaders)
	if errors.Is(err, errNoSuccessor) {
		err = m.transferToEligible(ctx, part, group, m.IsStaying)
	}
	return err
}

// TransferAway transfers the leadership of a group to a member that accepts leaders. A leader tries once in its term
// (partition.ErrTransferUsed).
func (m *Mover) TransferAway(ctx context.Context, id fsm.PartitionID, group *partition.Group) error {
	part := m.recordOf(id, group)
	return m.transferToEligible(ctx, &part, group, m.AcceptsLeaders)
}

// recordOf returns the record of a partition in this member's replica of the catalog. For the catalog itself
// it returns the voters of its group.
func (m *Mover) recordOf(id fsm.PartitionID, group *partition.Group) fsm.Partition {
	if id == fsm.CatalogPartition {
		return fsm.Partition{ID: id, Replicas: ReplicasOf(group.Status().Voters)}
	}
	if placed := m.Node.Partitions(); int(id) <= len(placed) {
		return placed[id-1]
	}
	return fsm.Partition{ID: id}
}

// ReplicasOf returns the replicas that vote in a group.
func ReplicasOf(voters []partition.Voter) []fsm.Replica {
	all := make([]fsm.Replica, len(voters))
	for i, v := range voters {
		all[i] = fsm.Replica{Member: v.Member, Number: raftgroup.ReplicaNumber(v.Replica)}
	}
	return all
}

// transferToEligible transfers the leadership to the first such replica whose member is eligible.
func (m *Mover) transferToEligible(ctx context.Context, part *fsm.Partition, group *partition.Group, eligible func(fsm.MemberID) bool) error {
	voters := group.Status().Voters
	for _, replica := range slices.Concat(part.Target, part.Replicas) {
		isThis := func(v partition.Voter) bool { return v.Replica == raftgroup.ReplicaID(replica.Member, replica.Number) }
		if replica.Member == m.Self || !slices.ContainsFunc(voters, isThis) || !eligible(replica.Member) ||
			!m.isCaughtUp(ctx, replica.Member, part.ID, group) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		err := group.Transfer(ctx, replica.Member)
		if err == nil {
			m.Logger.InfoContext(ctx, "leadership was transferred", "partition", part.ID, "peer", replica.Member)
		}
		return err
	}
	return errNoSuccessor
}

// TransferToPreferred transfers a leadership to the partition's preferred leader, once that member is alive,
// has been alive for Settle, and has caught up. While the partition moves, the preferred leader is that of the
// target. A drained member transfers to any member that can lead. A leader tries once in its term
// (partition.ErrTransferUsed), and not in its first second; this loop transfers the leadership of one group at a time.
func (m *Mover) TransferToPreferred(ctx context.Context, part *fsm.Partition, group *partition.Group) {
	m.mu.Lock()
	settled := m.led.isSettled(part.ID, group.Status().Term, time.Now())
	m.mu.Unlock()
	if !settled && time.Since(m.Opened) >= m.Settle {
		return
	}
	wanted := part.Replicas[0]
	if part.Target != nil {
		wanted = part.Target[0]
	}
	drained := m.Node.MemberRecord(m.Self).Drained
	if drained && (wanted.Member == m.Self || !m.AcceptsLeaders(wanted.Member)) {
		err := m.TransferToHolder(ctx, part, group)
		if err != nil && !errors.Is(err, partition.ErrTransferUsed) && !errors.Is(err, errNoSuccessor) {
			m.Logger.InfoContext(ctx, "failed to transfer a leadership away from a drained member", "partition", part.ID, "error", err)
		}
		return
	}
	isThis := func(v partition.Voter) bool { return v.Replica == raftgroup.ReplicaID(wanted.Member, wanted.Number) }
	if wanted.Member == m.Self || !m.AcceptsLeaders(wanted.Member) || !slices.ContainsFunc(group.Status().Voters, isThis) {
		return
	}
	// A member that restarts often does not get leaderships at once. If this member was opened less than Settle
	// ago, the cluster is probably starting, and leaderships are better spread at once.
	known, ok := m.Node.Lookup(wanted.Member)
	isSettled := drained || time.Since(known.Since) >= m.Settle || time.Since(m.Opened) < m.Settle
	if !ok || !isSettled || !m.isCaughtUp(ctx, wanted.Member, part.ID, group) {
		return
	}
	if !m.AcceptsLeaders(wanted.Member) {
		return // drained while it was asked
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := group.Transfer(ctx, wanted.Member)
	switch {
	case err == nil:
		m.Logger.InfoContext(ctx, "leadership was transferred to the preferred member", "partition", part.ID, "peer", wanted.Member)
	case errors.Is(err, partition.ErrTransferUsed):
	default:
		m.Logger.InfoContext(ctx, "failed to transfer a leadership to the preferred member", "partition", part.ID, "peer", wanted.Member, "error", err)
	}
}

// TransferAll transfers the leaderships of this member in some groups to members that are alive and caught up.
func (m *Mover) TransferAll(ctx context.Context, groups map[fsm.PartitionID]*partition.Group) {
	var giving sync.WaitGroup
	for id, group := range groups {
		if status := group.Status(); status.IsLeader && len(status.Voters) > 1 {
			giving.Go(func() { m.transferToAnyVoter(ctx, id, group) })
		}
	}
	giving.Wait()
}

// transferToAnyVoter transfers the leadership of a group to the first voter that can lead. It prefers voters
// that have free disk space.
func (m *Mover) transferToAnyVoter(ctx context.Context, id fsm.PartitionID, group *partition.Group) {
	for _, eligible := range []func(fsm.MemberID) bool{m.AcceptsLeaders, m.IsStaying} {
		for _, voter := range group.Status().Voters {
			if voter.Member == m.Self || !eligible(voter.Member) || !m.isCaughtUp(ctx, voter.Member, id, group) {
				continue
			}
			if err := group.Transfer(ctx, voter.Member); err != nil {
				m.Logger.InfoContext(ctx, "failed to transfer a leadership before closing", "partition", id, "peer", voter.Member, "error", err)
			}
			return // a second attempt in the same term can block raft
		}
	}
}

// isCaughtUp asks a member whether its replica has applied all but caughtUpLagMax of the entries that this
// member's replica has applied, and its disk is not slow compared with that of this member.
func (m *Mover) isCaughtUp(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, group *partition.Group) bool {
	ctx, cancel := context.WithTimeout(ctx, memberQueryTimeout)
	defer cancel()
	ours := group.Status()
	theirs, err := m.Node.Status(ctx, member, id)
	return err == nil && !theirs.Halted && theirs.Applied+caughtUpLagMax >= ours.Applied && !theirs.HasSlowDisk(ours.Latency.Median)
}
