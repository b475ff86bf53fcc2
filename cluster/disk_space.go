package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The pace of looking after room on disks.
const (
	spaceCheckInterval = 100 * time.Millisecond // at what is in memory anyhow
	// roomPatience is how long a leader without room tries to find somebody who has some before
	// its clients hear of it; until then their requests wait.
	spaceTransferTimeout = 2 * time.Second
	spaceRetryInterval   = 200 * time.Millisecond // of these tries
	// roomBackAfter is for how long a quorum must have room before messages are taken again.
	spaceRecoverDelay = time.Second
)

// hasSpace says whether a member has not said that its disk or its memory is nearly full.
func (n *Node) hasSpace(id fsm.MemberID) bool {
	if id == n.self {
		return !n.isLowOnSpace()
	}
	m, _ := n.gossip.Lookup(id)
	return !m.ReadOnly
}

// isLowOnSpace says whether our own disk is nearly full, or our memory.
func (n *Node) isLowOnSpace() bool {
	space := n.raftLog.DiskSpace()
	return space.RefusesGrowth()
}

// SetLowMemory is told whether the memory of the process is nearly used up by what waits in
// queues. While it is, this member does what it does when its disk is nearly full: it takes
// no new messages and entities, and gives leaderships to members that have room.
func (n *Node) SetLowMemory(on bool) { n.raftLog.SetLowMemory(on) }

// BusyReason says why this member takes no new messages just now, and what to do, for clients; ""
// when it does.
func (n *Node) BusyReason() string {
	switch space := n.raftLog.DiskSpace(); {
	case space.LowMemory:
		return "The member has no memory for more messages. Receive, purge or delete some that wait, or give it more memory."
	case space.ReadOnly:
		return "The disk of the member is nearly full. Receive, purge or delete messages that wait, or make its volume larger."
	}
	return ""
}

// acceptsReplicas says whether a member is there to be given replicas.
func (n *Node) acceptsReplicas(id fsm.MemberID) bool { return n.isAlive(id) && n.hasSpace(id) }

// groupSpace is what the room loop knows of a group that is led here.
type groupSpace struct {
	isReadOnly    bool      // what grows is refused, firmly
	spaceSince    time.Time // since when a quorum has room again, while firm
	transferSince time.Time // since when somebody is sought who takes over; zero: nobody is
	lastTransfer  time.Time // when that was last tried
	transferring  bool      // it is being tried
}

// spaceMonitor sees to it that a full disk stops as little as possible.
type spaceMonitor struct {
	node   *Node
	mu     sync.Mutex // guards busy of all; the rest is roomLoop's
	groups map[fsm.PartitionID]*groupSpace
}

// spaceLoop tells the others when our disk is nearly full, gives our leaderships then to
// voters that have room, and has groups refuse what grows when that is of no use: too few
// voters have room to commit anything, or none of those can lead.
func (n *Node) spaceLoop(ctx context.Context) {
	k := &spaceMonitor{node: n, groups: make(map[fsm.PartitionID]*groupSpace)}
	told := false
	ticker := time.NewTicker(spaceCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if short := n.isLowOnSpace(); short != told {
				told = short
				n.startTask(func(context.Context) { n.gossip.SetReadOnly(n.isLowOnSpace) }) // waits for the others
				notify.WakeUp(n.reconcileNow)
			}
			k.checkAll(ctx, now)
		}
	}
}

func (k *spaceMonitor) checkAll(ctx context.Context, now time.Time) {
	if len(k.groups) == 0 && !k.node.isLowOnSpace() && !slices.ContainsFunc(k.node.gossip.All(), func(m gossip.Member) bool { return m.ReadOnly }) {
		return // as ever
	}
	groups := *k.node.groups.Load()
	for id, group := range groups {
		k.checkGroup(ctx, now, id, group)
	}
	for id := range k.groups {
		if groups[id] == nil {
			delete(k.groups, id)
		}
	}
}

// checkGroup does what is to be done for one group.
func (k *spaceMonitor) checkGroup(ctx context.Context, now time.Time, id fsm.PartitionID, group *partition.Group) {
	status := group.Status()
	of := k.groups[id]
	if !status.IsLeader {
		if of != nil && of.isReadOnly {
			group.SetReadOnly(false) // that is for the next leader to say
		}
		delete(k.groups, id)
		return
	}
	full, isLow := k.hasNoQuorum(status.Voters), k.node.isLowOnSpace()
	if of == nil {
		if !full && !isLow {
			return
		}
		of = &groupSpace{}
		k.groups[id] = of
	}
	switch {
	case full:
		of.spaceSince = time.Time{}
		k.setReadOnly(ctx, id, group, of)
	case isLow:
		of.spaceSince = time.Time{}
		if of.transferSince.IsZero() {
			of.transferSince = now
		}
		if now.Sub(of.transferSince) > spaceTransferTimeout {
			k.setReadOnly(ctx, id, group, of)
		}
		k.transferAway(now, id, group, of)
	case !of.isReadOnly:
		delete(k.groups, id)
	case of.spaceSince.IsZero():
		of.spaceSince = now
	case now.Sub(of.spaceSince) > spaceRecoverDelay:
		group.SetReadOnly(false)
		delete(k.groups, id)
		k.node.log.InfoContext(ctx, "partition resumed accepting messages: enough members have free space", "partition", id)
	}
}

// hasNoQuorum says whether too few voters have room for anything to be committed. Without a full disk
// among them it never is: members that are away are no reason.
func (k *spaceMonitor) hasNoQuorum(voters []partition.Voter) bool {
	withSpace, lowOnSpace := 0, 0
	for _, v := range voters {
		switch {
		case !k.node.hasSpace(v.Member):
			lowOnSpace++
		case v.Member == k.node.self || k.node.isAlive(v.Member):
			withSpace++
		}
	}
	return lowOnSpace > 0 && withSpace < len(voters)/2+1
}

// setReadOnly has the group refuse what grows, so that clients hear of it at once.
func (k *spaceMonitor) setReadOnly(ctx context.Context, id fsm.PartitionID, group *partition.Group, of *groupSpace) {
	if of.isReadOnly {
		return
	}
	of.isReadOnly = true
	group.SetReadOnly(true)
	k.node.log.ErrorContext(ctx, "partition was made read-only: too few of its members have free disk space and memory; "+
		"receive, purge or delete messages, make volumes or memory larger, or move the partition to other members",
		"partition", id)
}

// transferAway gives the leadership of a group to a voter with room, in the background.
func (k *spaceMonitor) transferAway(now time.Time, id fsm.PartitionID, group *partition.Group, of *groupSpace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of.transferring || now.Sub(of.lastTransfer) < spaceRetryInterval {
		return
	}
	of.transferring, of.lastTransfer = true, now
	part := k.node.placementOf(id, group)
	if !k.node.startTask(func(ctx context.Context) {
		err := k.node.transferToEligible(ctx, &part, group, k.node.acceptsLeaders)
		if err != nil {
			k.node.log.DebugContext(ctx, "failed to transfer a leadership to a member with free space, will retry", "partition", id, "error", err)
		}
		k.mu.Lock()
		of.transferring = false
		k.mu.Unlock()
	}) {
		of.transferring = false
	}
}

// placementOf is our replica of the catalog's word about a partition, and of the catalog itself what
// its group says.
func (n *Node) placementOf(id fsm.PartitionID, group *partition.Group) fsm.Partition {
	if id == fsm.CatalogPartition {
		return fsm.Partition{ID: id, Replicas: n.catalogReplicas(group.Status().Voters)}
	}
	if placed := n.partitions.Load(); placed != nil && int(id) <= len(*placed) {
		return (*placed)[id-1]
	}
	return fsm.Partition{ID: id}
}
