package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// transferLeaderships transfers every leadership of this member to a member that is alive and caught up.
func (n *Node) transferLeaderships(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.config.Timing.Handover)
	defer cancel()
	var giving sync.WaitGroup
	for id, group := range *n.groups.Load() {
		if status := group.Status(); status.IsLeader && len(status.Voters) > 1 {
			giving.Go(func() { n.transferToAnyVoter(ctx, id, group) })
		}
	}
	giving.Wait()
}

// transferToAnyVoter transfers the leadership of a group to the first voter that can lead. It prefers voters
// that have free disk space.
func (n *Node) transferToAnyVoter(ctx context.Context, id fsm.PartitionID, group *partition.Group) {
	for _, eligible := range []func(fsm.MemberID) bool{n.acceptsLeaders, n.isStaying} {
		for _, voter := range group.Status().Voters {
			if voter.Member == n.self || !eligible(voter.Member) || !n.isCaughtUp(ctx, voter.Member, id, group) {
				continue
			}
			if err := group.Transfer(ctx, voter.Member); err != nil {
				n.log.InfoContext(ctx, "failed to transfer a leadership before closing", "partition", id, "peer", voter.Member, "error", err)
			}
			return // a second attempt in the same term can block raft
		}
	}
}

// acceptsLeaders reports whether a member is alive, is not leaving or drained, and has free disk space.
func (n *Node) acceptsLeaders(id fsm.MemberID) bool { return n.isStaying(id) && n.hasSpace(id) }

// isStaying reports whether a member is alive, is not leaving and is not drained.
func (n *Node) isStaying(id fsm.MemberID) bool {
	m, ok := n.gossip.Lookup(id)
	return ok && m.Alive && !m.Leaving && !n.memberRecord(id).Drained
}

// isCaughtUp asks a member whether its replica has applied all but caughtUpLagMax of the entries that this
// member's replica has applied.
func (n *Node) isCaughtUp(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, group *partition.Group) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	before := group.Status().Applied
	theirs, err := n.askStatus(ctx, member, id)
	return err == nil && !theirs.Halted && theirs.Applied+caughtUpLagMax >= before
}
