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

// giveAway gives the leadership of a group to the first voter that can take it, before all
// to one that has room on its disk.
func (n *Node) giveAway(ctx context.Context, id fsm.PartitionID, group *partition.Group) {
	for _, fit := range []func(fsm.MemberID) bool{n.takesLeaders, n.stays} {
		for _, voter := range group.Status().Voters {
			if voter.Member == n.self || !fit(voter.Member) || !n.caughtUp(ctx, voter.Member, id, group) {
				continue
			}
			if err := group.Transfer(ctx, voter.Member); err != nil {
				n.log.InfoContext(ctx, "hand over leadership", "partition", id, "peer", voter.Member, "error", err)
			}
			return // a second try in one leadership can wedge raft
		}
	}
}

// takesLeaders says whether a member is alive and stays, is not drained, and has room on its
// disk.
func (n *Node) takesLeaders(id fsm.MemberID) bool { return n.stays(id) && n.hasRoom(id) }

// stays says whether a member is alive, does not leave, and is not drained.
func (n *Node) stays(id fsm.MemberID) bool {
	m, ok := n.gossip.Lookup(id)
	return ok && m.Alive && !m.Leaving && !n.memberOf(id).Drained
}

// caughtUp asks a member whether its replica has applied nearly all that ours has.
func (n *Node) caughtUp(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, group *partition.Group) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	before := group.Status().Applied
	theirs, err := n.askStatus(ctx, member, id)
	return err == nil && !theirs.Halted && theirs.Applied+caughtUpMax >= before
}
