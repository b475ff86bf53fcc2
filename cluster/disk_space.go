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

// The intervals of the checks of disk space.
const (
	spaceCheckInterval = 100 * time.Millisecond // between two checks, which read memory only
	// spaceTransferTimeout is how long a leader without free space tries to transfer its leadership before it
	// refuses the requests of its clients; until then they wait.
	spaceTransferTimeout = 2 * time.Second
	spaceRetryInterval   = 200 * time.Millisecond // between two attempts to transfer
	// spaceRecoverDelay is how long a quorum must have free space before a group accepts messages again.
	spaceRecoverDelay = time.Second
)

// hasSpace reports whether a member has announced neither that its disk nor that its memory is nearly full.
func (n *Node) hasSpace(id fsm.MemberID) bool {
	if id == n.self {
		return !n.isLowOnSpace()
	}
	m, _ := n.gossip.Lookup(id)
	return !m.ReadOnly
}

// isLowOnSpace reports whether the disk or the memory of this member is nearly full.
func (n *Node) isLowOnSpace() bool {
	space := n.raftLog.DiskSpace()
	return space.RefusesGrowth()
}

// SetLowMemory sets whether queued data has nearly used up the memory of the process. While it is set, this
// member behaves as when its disk is nearly full: it accepts no new messages and entities, and transfers
// leaderships to members that have free space.
func (n *Node) SetLowMemory(on bool) { n.raftLog.SetLowMemory(on) }

// BusyReason returns, for clients, why this member accepts no new messages now and what to do, and "" when it
// accepts them.
func (n *Node) BusyReason() string {
	switch space := n.raftLog.DiskSpace(); {
	case space.LowMemory:
		return "The member has no memory for more messages. Receive, purge or delete some that wait, or give it more memory."
	case space.ReadOnly:
		return "The disk of the member is nearly full. Receive, purge or delete messages that wait, or make its volume larger."
	}
	return ""
}

// groupSpace is the state of spaceLoop for a group that is led here.
type groupSpace struct {
	isReadOnly    bool      // the group refuses commands that grow its state, and the refusal is final
	spaceSince    time.Time // when a quorum had free space again, while isReadOnly
	transferSince time.Time // when spaceLoop began to look for another leader; zero: it does not
	lastTransfer  time.Time // the last attempt to transfer
	transferring  bool      // an attempt is in progress
}

// spaceMonitor limits the effect of full disks on the groups that this member leads.
type spaceMonitor struct {
	node   *Node
	mu     sync.Mutex // guards transferring of all groups; spaceLoop owns the rest
	groups map[fsm.PartitionID]*groupSpace
}

// spaceLoop announces when this member is low on space, and then transfers its leaderships to voters that have
// space. It makes a group read-only when that cannot help: too few voters have space to commit anything, or
// none of those can lead.
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
				n.startTask(func(context.Context) { n.gossip.SetReadOnly(n.isLowOnSpace) }) // waits until others know
				notify.WakeUp(n.reconcileNow)
			}
			k.checkAll(ctx, now)
		}
	}
}

func (k *spaceMonitor) checkAll(ctx context.Context, now time.Time) {
	if len(k.groups) == 0 && !k.node.isLowOnSpace() && !slices.ContainsFunc(k.node.gossip.All(), func(m gossip.Member) bool { return m.ReadOnly }) {
		return // the usual case: no member is low on space
	}
	groups := k.node.replicas.All()
	for id, group := range groups {
		k.checkGroup(ctx, now, id, group)
	}
	for id := range k.groups {
		if groups[id] == nil {
			delete(k.groups, id)
		}
	}
}

// checkGroup checks one group and acts on the result.
func (k *spaceMonitor) checkGroup(ctx context.Context, now time.Time, id fsm.PartitionID, group *partition.Group) {
	status := group.Status()
	of := k.groups[id]
	if !status.IsLeader {
		if of != nil && of.isReadOnly {
			group.SetReadOnly(false) // the next leader decides
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

// hasNoQuorum reports whether too few voters have free space to commit anything. It returns false if no voter
// is low on space, because absent members alone must not make a group read-only.
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

// setReadOnly makes the group refuse commands that grow its state, so that clients learn of it at once.
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

// transferAway transfers the leadership of a group to a voter with free space, in the background.
func (k *spaceMonitor) transferAway(now time.Time, id fsm.PartitionID, group *partition.Group, of *groupSpace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of.transferring || now.Sub(of.lastTransfer) < spaceRetryInterval {
		return
	}
	of.transferring, of.lastTransfer = true, now
	part := k.node.placementOf(id, group)
	if !k.node.startTask(func(ctx context.Context) {
		err := k.node.mover.TransferToEligible(ctx, &part, group, k.node.mover.AcceptsLeaders)
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

// placementOf returns the record of a partition in this member's replica of the catalog. For the catalog itself
// it returns the voters of its group.
func (n *Node) placementOf(id fsm.PartitionID, group *partition.Group) fsm.Partition {
	if id == fsm.CatalogPartition {
		return fsm.Partition{ID: id, Replicas: n.catalogReplicas(group.Status().Voters)}
	}
	if placed := n.partitions.Load(); placed != nil && int(id) <= len(*placed) {
		return (*placed)[id-1]
	}
	return fsm.Partition{ID: id}
}
