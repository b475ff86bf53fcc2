package cluster

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// readableLevel is the highest level that this member's binary can read.
func (n *Node) readableLevel() uint32 { return cmp.Or(n.config.readableLevel, fsm.FormatLevel) }

// FeatureLevel is what may be written: formats and commands that every member reads, see fsm.Level. It
// only rises, and may rise a moment earlier than this member hears of it. At least 1.
func (n *Node) FeatureLevel() uint32 { return max(1, n.featureLevel.Load()) }

// Outdated is closed when this member learns that its binary is too old for the cluster;
// the process should then close it and end. Ready returns bootstrap.ErrOutdated from then on.
func (n *Node) Outdated() <-chan struct{} { return n.outdated }

// adoptLevel takes over the level of the catalog; false when it is more than we know. It is
// written down before anything of that level is, so that the next start of an old binary
// ends before it opens a log that it cannot read. Called by catalogLoop alone.
func (n *Node) adoptLevel(ctx context.Context, level uint32) bool {
	if n.featureLevel.Swap(level) == level {
		return level <= n.readableLevel()
	}
	err := error(nil)
	if n.dataDir.Identity().Level < level {
		err = n.dataDir.Update(func(id *datadir.Identity) { id.Level = level })
	}
	if err != nil {
		n.log.ErrorContext(ctx, "failed to record the feature level of the cluster", "error", err)
	}
	if level <= n.readableLevel() {
		n.log.InfoContext(ctx, "feature level of the cluster was adopted", "level", level, "known", n.readableLevel())
		return true
	}
	n.failStart(bootstrap.OutdatedError(level, n.readableLevel()))
	close(n.outdated) // once: the level only rises, and after this nothing is followed any more
	return false
}

// levelProposal is what the leader of the catalog remembers between two looks.
type levelProposal struct {
	level uint32
	since time.Time
}

// raiseLevel gives the cluster the highest level that every member knows, when that has been so
// for Settle. A member that is dead counts with what it last said: one of which we know nothing
// holds the level down, for it may come back with any binary.
func (n *Node) raiseLevel(ctx context.Context, group *partition.Group) {
	level := n.readableLevel()
	members := n.countedMembers(group)
	for _, id := range members {
		m, known := n.gossip.Lookup(id)
		if !known {
			level = 0
		}
		level = min(level, m.Level)
	}
	if level <= n.FeatureLevel() {
		n.levelProposal = levelProposal{}
		return
	}
	if n.levelProposal.level != level {
		n.levelProposal = levelProposal{level, time.Now()}
	}
	if time.Since(n.levelProposal.since) < n.config.Timing.Settle {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for _, id := range members { // gossip may be of a process that is no more, or a lie
		if id == n.self || !n.isAlive(id) {
			continue
		}
		if hello, err := n.askHello(ctx, id); err != nil || hello.ReadableLevel < level {
			n.levelProposal = levelProposal{}
			return
		}
	}
	if _, err := n.router.Command(ctx, fsm.CatalogPartition, fsm.RaiseLevel{Level: level}); err != nil {
		n.log.WarnContext(ctx, "failed to raise the feature level of the cluster, will retry", "level", level, "error", err)
		return
	}
	n.log.InfoContext(ctx, "feature level of the cluster was raised: every member can read it", "level", level)
}

// raisePartitionLevels writes the level of the cluster into the logs of the partitions that we lead and
// whose machines are below it: they know no other level than what their logs say. It is
// called again and again, so what gets lost is written the next time.
func (n *Node) raisePartitionLevels(ctx context.Context) {
	level := min(n.FeatureLevel(), fsm.FormatLevel)
	for id, group := range *n.groups.Load() {
		if id == fsm.CatalogPartition || !group.Status().IsLeader {
			continue
		}
		below := false
		group.View(func(m partition.Machine) { below = raftgroup.Queues(m).FormatLevel() < level })
		if !below {
			continue
		}
		n.log.DebugContext(ctx, "requested a higher feature level for a partition", "partition", id, "level", level)
		command := fsm.AppendCommand(nil, fsm.Header{}, fsm.RaiseLevel{Level: level})
		group.Submit(command, func(partition.Answer) {})
	}
}

// countedMembers returns the members that the cluster counts with: those that hold the catalog or a
// partition, or shall, without removed ones. Whom gossip shows besides may be anybody.
func (n *Node) countedMembers(group *partition.Group) (members []fsm.MemberID) {
	add := func(id fsm.MemberID) {
		if !slices.Contains(members, id) && !n.memberRecord(id).Removed {
			members = append(members, id)
		}
	}
	status := group.Status()
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		add(v.Member)
	}
	if placed := n.partitions.Load(); placed != nil {
		for i := range *placed {
			for _, r := range slices.Concat((*placed)[i].Replicas, (*placed)[i].Target) {
				add(r.Member)
			}
		}
	}
	return members
}
