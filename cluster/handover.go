package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// handOver gives every leadership to a member that is alive and caught up.
func (n *Node) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.config.Timing.Handover)
	defer cancel()
	var giving sync.WaitGroup
	for id, group := range *n.groups.Load() {
		if status := group.Status(); status.Leads && len(status.Voters) > 1 {
			giving.Go(func() { n.giveAway(ctx, id, group) })
		}
	}
	giving.Wait()
}

// giveAway tries the voters of a group in turn until one takes the leadership.
func (n *Node) giveAway(ctx context.Context, id fsm.PartitionID, group *partition.Group) {
	for _, voter := range group.Status().Voters {
		if voter.Member == n.self || !n.takesLeaders(voter.Member) || !n.caughtUp(ctx, voter.Member, id, group) {
			continue
		}
		err := group.Transfer(ctx, voter.Member)
		if err == nil {
			return
		}
		n.log.InfoContext(ctx, "hand over leadership", "partition", id, "peer", voter.Member, "error", err)
		return // a second try in one leadership can wedge raft
	}
}

// takesLeaders says whether a member is alive and stays.
func (n *Node) takesLeaders(id fsm.MemberID) bool {
	m, ok := n.gossip.lookup(id)
	return ok && m.alive && !m.Leaving
}

// caughtUp asks a member whether its replica has applied nearly all that ours has.
func (n *Node) caughtUp(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, group *partition.Group) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	before := group.Status().Applied
	theirs, err := n.askStatus(ctx, member, id)
	return err == nil && !theirs.Halted && theirs.Applied+caughtUpMax >= before
}
