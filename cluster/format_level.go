package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// readableLevel is the highest level that this member's binary can read.
func (n *Node) readableLevel() uint32 { return cmp.Or(n.config.readableLevel, fsm.FormatLevel) }

// FormatLevel is the level of the cluster: formats and commands up to it may be written, because every member
// can read them (see fsm.FormatLevel). It only rises, and may rise a moment before this member learns it. At
// least 1.
func (n *Node) FormatLevel() uint32 { return max(1, n.formatLevel.Load()) }

// Outdated returns a channel that is closed when this member learns that its binary is too old for the cluster.
// The process should then call Close and exit. From then on Ready returns bootstrap.ErrOutdated.
func (n *Node) Outdated() <-chan struct{} { return n.outdated }

// adoptLevel adopts the level of the catalog. It returns false when this binary cannot read that level. The
// level is recorded on disk before this member writes anything of that level, so that an old binary fails at its next
// start before it opens a log that it cannot read. A record that fails is tried again at the next call. Only catalogLoop
// calls it, each time that it follows the catalog.
func (n *Node) adoptLevel(ctx context.Context, level uint32) bool {
	if n.dataDir.Identity().Level < level {
		if err := n.dataDir.Update(func(id *datadir.Identity) { id.Level = level }); err != nil {
			n.log.ErrorContext(ctx, "failed to record the format level of the cluster, will retry", "level", level, "error", err)
		}
	}
	if n.formatLevel.Swap(level) == level {
		return level <= n.readableLevel()
	}
	if level <= n.readableLevel() {
		n.log.InfoContext(ctx, "format level of the cluster was adopted", "level", level, "known", n.readableLevel())
		return true
	}
	n.failStart(bootstrap.OutdatedError(level, n.readableLevel()))
	close(n.outdated) // closed once: the level only rises, and the catalog is not followed after this
	return false
}

// levelProposal is the level that the leader of the catalog is about to raise to, and since when every member
// can read it.
type levelProposal struct {
	level uint32
	since time.Time
}

// raiseLevel raises the cluster to the highest level that every member can read and an operator permits, when that has
// been so for Settle; a new cluster at once. A dead member counts with the level that it last announced. The level does not
// rise while the version of any member is unknown.
func (n *Node) raiseLevel(ctx context.Context, group *partition.Group) {
	level := n.readableLevel()
	if most := levelMax(group); most != 0 {
		level = min(level, most)
	}
	members := n.countedMembers(group)
	for _, id := range members {
		m, known := n.gossip.Lookup(id)
		if !known {
			level = 0
		}
		level = min(level, m.Level)
	}
	if level <= n.FormatLevel() {
		n.levelProposal = levelProposal{}
		return
	}
	if n.levelProposal.level != level {
		n.levelProposal = levelProposal{level, time.Now()}
	}
	if time.Since(n.levelProposal.since) < n.config.Timing.Settle && !n.isNew(group, members) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for _, id := range members { // gossip may describe a process that has ended, or be forged
		if id == n.self || !n.isAlive(id) {
			continue
		}
		if hello, err := n.askHello(ctx, id); err != nil || hello.ReadableLevel < level {
			n.levelProposal = levelProposal{}
			return
		}
	}
	if _, err := n.router.Command(ctx, fsm.CatalogPartition, fsm.RaiseLevel{Level: level}); err != nil {
		n.log.WarnContext(ctx, "failed to raise the format level of the cluster, will retry", "level", level, "error", err)
		return
	}
	n.log.InfoContext(ctx, "format level of the cluster was raised: every member can read it", "level", level)
}

// levelMax returns the level above which a replica of the catalog does not rise, 0 for none.
func levelMax(group rpc.Group) (most uint32) {
	group.View(func(m partition.Machine) { most = raftgroup.Catalog(m).FormatLevelMax() })
	return most
}

// HoldFormatLevel sets the format level above which the cluster does not rise, 0 for none. Errors wrap
// PreconditionFails if the cluster has a higher level already, ServerBusy or Timeout.
func (o *Operator) HoldFormatLevel(ctx context.Context, most uint32) error {
	_, err := o.router.Command(ctx, fsm.CatalogPartition, fsm.HoldLevel{Max: most})
	if errors.Is(err, fsm.PreconditionFails) {
		return fmt.Errorf("%w: the cluster has a higher format level than %d, and the level never falls", err, most)
	}
	return err
}

// isNew reports whether the cluster has no entity yet and all of its members are alive. Its level rises at once, so
// that the first clients find every feature.
func (n *Node) isNew(group *partition.Group, members []fsm.MemberID) (isNew bool) {
	if slices.ContainsFunc(members, func(id fsm.MemberID) bool { return id != n.self && !n.isAlive(id) }) {
		return false
	}
	group.View(func(m partition.Machine) { isNew = raftgroup.Catalog(m).Entities() == 0 })
	return isNew
}

// raisePartitionLevels writes the level of the cluster into the logs of the partitions that this member leads
// and whose state machines have a lower level: they know only the level in their log. It is called repeatedly,
// so a command that is lost is written the next time.
func (n *Node) raisePartitionLevels(ctx context.Context) {
	level := min(n.FormatLevel(), n.readableLevel())
	for id, group := range n.replicas.All() {
		if id == fsm.CatalogPartition || !group.Status().IsLeader {
			continue
		}
		below := false
		group.View(func(m partition.Machine) { below = raftgroup.Queues(m).FormatLevel() < level })
		if !below {
			continue
		}
		n.log.DebugContext(ctx, "requested a higher format level for a partition", "partition", id, "level", level)
		command := fsm.AppendCommand(nil, fsm.Header{}, fsm.RaiseLevel{Level: level})
		group.Submit(command, func(partition.Answer) {})
	}
}

// countedMembers returns the members that count for the level and for automatic moves: those that hold, or are
// to hold, the catalog or a partition, without removed ones. Other processes that gossip lists may not belong
// to the cluster.
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
