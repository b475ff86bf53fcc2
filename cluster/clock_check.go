package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// compareClocks asks the living members for their clocks and compares those that have answered. It runs every
// Timing.Ping.
func (n *Node) compareClocks(ctx context.Context) {
	for _, id := range n.gossip.Alive() {
		if id != n.self {
			n.peerClient.Conn(id) //nolint:contextcheck // opened if there is none, for longer than ctx: its pings carry the clocks
		}
	}
	before := n.clocks.Last()
	wasOff := n.clocks.IsOff(n.self)
	now := n.clocks.Compare(n.clockMembers())
	switch isOff := n.clocks.IsOff(n.self); {
	case isOff && !wasOff:
		n.log.ErrorContext(ctx, "clock of this member was found wrong; its leaderships are transferred until it agrees with a quorum again: "+
			"check NTP or chrony on this host", "offset", now.Offset, "max", clocks.ErrorMax)
	case wasOff && now.Agreed && !isOff:
		n.log.InfoContext(ctx, "clock of this member agreed with a quorum again", "offset", now.Offset)
	case before.Agreed && !now.Agreed:
		n.log.WarnContext(ctx, "lost clock quorum; advancing wall time by the monotonic clock", "members", now.Members, "known", now.Known)
	}
	switch {
	case now.Held && !before.Held:
		n.log.ErrorContext(ctx, "the clocks of a quorum were set together; wall time does not follow them, so that no message expires or becomes active by it: "+
			"repair NTP or chrony, or accept the new time (peeklock cluster confirm-time)", "step", now.Step, "max", clocks.StepMax)
	case before.Held && !now.Held:
		n.log.InfoContext(ctx, "wall time was released; it follows the clocks of a quorum again")
	}
}

// ConfirmTime accepts the time to which the clocks of a quorum were set together, and returns by how much wall time
// moves. The other members follow within some seconds. The error wraps PreconditionFails if this member does not hold
// wall time.
func (o *Operator) ConfirmTime(ctx context.Context) (step time.Duration, err error) {
	step, held := o.node.clocks.Confirm()
	if !held {
		return 0, fmt.Errorf("%w: wall time follows the clocks; nothing is to be confirmed", fsm.PreconditionFails)
	}
	o.node.log.WarnContext(ctx, "an operator accepted the time of the clocks; wall time moves to it", "step", step)
	return step, nil
}

// clockMembers lists the members whose clocks count: this one and those that hold replicas. Gossip does not
// count: one process could announce many members and outvote the others. It is nil before the catalog is loaded: a member that has
// just started may know itself only, and would confirm its own clock. For the same reason the voters of its groups count, which
// the logs have from the start: the catalog may be older than they are, until a leader has confirmed what followed.
func (n *Node) clockMembers() []fsm.MemberID {
	placed := n.partitions.Load()
	if placed == nil {
		return nil
	}
	seen := map[fsm.MemberID]bool{n.self: true}
	list := []fsm.MemberID{n.self}
	add := func(id fsm.MemberID) {
		if !seen[id] && !n.memberRecord(id).Removed {
			seen[id] = true
			list = append(list, id)
		}
	}
	for i := range *placed {
		for _, r := range (*placed)[i].Replicas {
			add(r.Member)
		}
	}
	for _, group := range n.replicas.All() {
		for _, voter := range group.Status().Voters {
			add(voter.Member)
		}
	}
	return list
}

// clockLoop transfers the leaderships of this member to others while its clock is wrong. Its entries do no
// harm meanwhile: a leader stamps no time that a quorum does not confirm.
func (n *Node) clockLoop(ctx context.Context) {
	ticker := time.NewTicker(n.config.Timing.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if n.clocks.IsOff(n.self) {
				n.giveLeadershipsAway(ctx)
			}
		}
	}
}

// giveLeadershipsAway transfers the leaderships of this member to members that accept them. A leader tries once
// in its term.
func (n *Node) giveLeadershipsAway(ctx context.Context) {
	for id, group := range n.replicas.All() {
		if status := group.Status(); !status.IsLeader || len(status.Voters) < 2 || ctx.Err() != nil {
			continue
		}
		err := n.mover.TransferAway(ctx, id, group)
		if err != nil && !errors.Is(err, partition.ErrTransferUsed) && !errors.Is(err, partition.ErrNotLeader) {
			n.log.DebugContext(ctx, "failed to transfer a leadership to a member whose clock is right, will retry", "partition", id, "error", err)
		}
	}
}
