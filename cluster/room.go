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
	roomLook = 100 * time.Millisecond // at what is in memory anyhow
	// roomPatience is how long a leader without room tries to find somebody who has some before
	// its clients hear of it; until then their requests wait.
	roomPatience = 2 * time.Second
	roomTryEvery = 200 * time.Millisecond // of these tries
	// roomBackAfter is for how long a quorum must have room before messages are taken again.
	roomBackAfter = time.Second
)

// hasRoom says whether a member has not said that its disk or its memory is nearly full.
func (n *Node) hasRoom(id fsm.MemberID) bool {
	if id == n.self {
		return !n.isShort()
	}
	m, _ := n.gossip.Lookup(id)
	return !m.ReadOnly
}

// isShort says whether our own disk is nearly full, or our memory.
func (n *Node) isShort() bool {
	space := n.store.Space()
	return space.Short()
}

// SetShortOfMemory is told whether the memory of the process is nearly used up by what waits in
// queues. While it is, this member does what it does when its disk is nearly full: it takes
// no new messages and entities, and gives leaderships to members that have room.
func (n *Node) SetShortOfMemory(on bool) { n.store.SetShortOfMemory(on) }

// BusyReason says why this member takes no new messages just now, and what to do, for clients; ""
// when it does.
func (n *Node) BusyReason() string {
	switch space := n.store.Space(); {
	case space.ShortOfMemory:
		return "The member has no memory for more messages. Receive, purge or delete some that wait, or give it more memory."
	case space.ReadOnly:
		return "The disk of the member is nearly full. Receive, purge or delete messages that wait, or make its volume larger."
	}
	return ""
}

// takesReplicas says whether a member is there to be given replicas.
func (n *Node) takesReplicas(id fsm.MemberID) bool { return n.isAlive(id) && n.hasRoom(id) }

// roomOf is what the room loop knows of a group that is led here.
type roomOf struct {
	firm  bool      // what grows is refused, firmly
	since time.Time // since when a quorum has room again, while firm
	asked time.Time // since when somebody is sought who takes over; zero: nobody is
	tried time.Time // when that was last tried
	busy  bool      // it is being tried
}

// roomKeeper sees to it that a full disk stops as little as possible.
type roomKeeper struct {
	n  *Node
	mu sync.Mutex // guards busy of all; the rest is roomLoop's
	of map[fsm.PartitionID]*roomOf
}

// roomLoop tells the others when our disk is nearly full, gives our leaderships then to
// voters that have room, and has groups refuse what grows when that is of no use: too few
// voters have room to commit anything, or none of those can lead.
func (n *Node) roomLoop(ctx context.Context) {
	k := &roomKeeper{n: n, of: make(map[fsm.PartitionID]*roomOf)}
	told := false
	ticker := time.NewTicker(roomLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if short := n.isShort(); short != told {
				told = short
				n.start(func(context.Context) { n.gossip.SetReadOnly(n.isShort) }) // waits for the others
				notify.WakeUp(n.wake)
			}
			k.look(ctx, now)
		}
	}
}

func (k *roomKeeper) look(ctx context.Context, now time.Time) {
	if len(k.of) == 0 && !k.n.isShort() && !slices.ContainsFunc(k.n.gossip.All(), func(m gossip.Member) bool { return m.ReadOnly }) {
		return // as ever
	}
	groups := *k.n.groups.Load()
	for id, group := range groups {
		k.group(ctx, now, id, group)
	}
	for id := range k.of {
		if groups[id] == nil {
			delete(k.of, id)
		}
	}
}

// group does what is to be done for one group.
func (k *roomKeeper) group(ctx context.Context, now time.Time, id fsm.PartitionID, group *partition.Group) {
	status := group.Status()
	of := k.of[id]
	if !status.Leads {
		if of != nil && of.firm {
			group.SetReadOnly(false) // that is for the next leader to say
		}
		delete(k.of, id)
		return
	}
	full, short := k.full(status.Voters), k.n.isShort()
	if of == nil {
		if !full && !short {
			return
		}
		of = &roomOf{}
		k.of[id] = of
	}
	switch {
	case full:
		of.since = time.Time{}
		k.refuse(ctx, id, group, of)
	case short:
		of.since = time.Time{}
		if of.asked.IsZero() {
			of.asked = now
		}
		if now.Sub(of.asked) > roomPatience {
			k.refuse(ctx, id, group, of)
		}
		k.handOn(now, id, group, of)
	case !of.firm:
		delete(k.of, id)
	case of.since.IsZero():
		of.since = now
	case now.Sub(of.since) > roomBackAfter:
		group.SetReadOnly(false)
		delete(k.of, id)
		k.n.log.InfoContext(ctx, "partition takes new messages again: there is room", "partition", id)
	}
}

// full says whether too few voters have room for anything to be committed. Without a full disk
// among them it never is: members that are away are no reason.
func (k *roomKeeper) full(voters []partition.Voter) bool {
	room, short := 0, 0
	for _, v := range voters {
		switch {
		case !k.n.hasRoom(v.Member):
			short++
		case v.Member == k.n.self || k.n.isAlive(v.Member):
			room++
		}
	}
	return short > 0 && room < len(voters)/2+1
}

// refuse has the group refuse what grows, so that clients hear of it at once.
func (k *roomKeeper) refuse(ctx context.Context, id fsm.PartitionID, group *partition.Group, of *roomOf) {
	if of.firm {
		return
	}
	of.firm = true
	group.SetReadOnly(true)
	k.n.log.ErrorContext(ctx, "partition takes no new messages and entities: too few of its members have room on their disks and in memory; "+
		"receive, purge or delete messages, make volumes or memory larger, or move the partition to other members",
		"partition", id)
}

// handOn gives the leadership of a group to a voter with room, in the background.
func (k *roomKeeper) handOn(now time.Time, id fsm.PartitionID, group *partition.Group, of *roomOf) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of.busy || now.Sub(of.tried) < roomTryEvery {
		return
	}
	of.busy, of.tried = true, now
	part := k.n.partOf(id, group)
	if !k.n.start(func(ctx context.Context) {
		err := k.n.handOnTo(ctx, &part, group, k.n.takesLeaders)
		k.n.log.DebugContext(ctx, "hand a leadership to a member with room", "partition", id, "error", err)
		k.mu.Lock()
		of.busy = false
		k.mu.Unlock()
	}) {
		of.busy = false
	}
}

// partOf is our replica of the catalog's word about a partition, and of the catalog itself what
// its group says.
func (n *Node) partOf(id fsm.PartitionID, group *partition.Group) fsm.Partition {
	if id == fsm.CatalogPartition {
		return fsm.Partition{ID: id, Replicas: n.catalogReplicas(group.Status().Voters)}
	}
	if placed := n.placed.Load(); placed != nil && int(id) <= len(*placed) {
		return (*placed)[id-1]
	}
	return fsm.Partition{ID: id}
}
