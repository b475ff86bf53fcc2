package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// This file replaces replicas that have lost entries of their log. Such a replica may have confirmed what it no longer has, so
// it must not vote under its name again: it comes back under another one, and the leader of its group fills it.

// The limits of replacing damaged replicas.
const (
	healTimeout        = 5 * time.Second  // for the leader to have a replica replaced
	catalogHealTimeout = 30 * time.Second // for the others to agree that a start replaces this member's replica of the catalog
	catalogHealPause   = 500 * time.Millisecond
)

// replaceReplicaQuery asks the leader of a partition to replace a replica whose log is damaged. PreconditionFails means that
// the group needs the replica for a quorum. For the catalog, whose replicas are numbered by their members, the leader confirms
// that the group does not need the replica, and removes it once its member has chosen another number.
type replaceReplicaQuery struct {
	Partition fsm.PartitionID `json:"Partition"`
	Replica   fsm.Replica     `json:"Replica"`
}

// noteDamaged records that the log of a replica is damaged, until healReplicas asks for another one.
func (n *Node) noteDamaged(id fsm.PartitionID, number uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.damaged[id] = number
}

// takeDamaged returns the replicas of message partitions whose log is damaged, by partition, as noted since the last call and
// as halted.
func (n *Node) takeDamaged() map[fsm.PartitionID]uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.damaged
	n.damaged = make(map[fsm.PartitionID]uint32)
	for id, group := range *n.groups.Load() {
		if id != fsm.CatalogPartition && errors.Is(group.Status().Halted, partition.ErrLogDamaged) {
			found[id] = n.replicaNumbers[id]
		}
	}
	return found
}

// healReplicas has the damaged replicas of message partitions replaced, in a task of its own. Only one such task runs at a
// time. It is called repeatedly: a replica that was not replaced is found again.
func (n *Node) healReplicas() {
	if !n.healing.CompareAndSwap(false, true) {
		return
	}
	n.raftLog.StopDamaged()
	damaged := n.takeDamaged()
	if len(damaged) == 0 || !n.startTask(func(ctx context.Context) {
		defer n.healing.Store(false)
		for id, number := range damaged {
			n.healReplica(ctx, id, number)
		}
	}) {
		n.healing.Store(false)
	}
}

func (n *Node) healReplica(ctx context.Context, id fsm.PartitionID, number uint32) {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	query := replaceReplicaQuery{Partition: id, Replica: fsm.Replica{Member: n.self, Number: number}}
	if _, err := replaceReplica.Ask(ctx, n.router.Leader(id), query); err != nil {
		n.log.WarnContext(ctx, "failed to have a damaged replica replaced, will retry: the other replicas must have a quorum", "partition", id, "number", number, "error", err)
		return
	}
	n.log.WarnContext(ctx, "replica with a damaged log was taken out of its partition, and another one takes its place", "partition", id, "number", number)
}

// answerReplaceReplica answers replaceReplicaQuery, as the leader of the partition.
func (n *Node) answerReplaceReplica(ctx context.Context, q replaceReplicaQuery) (struct{}, error) {
	group := n.group(q.Partition)
	switch {
	case group == nil || !group.Status().IsLeader:
		return struct{}{}, rpc.ErrNotLeader
	case q.Replica.Member == n.self:
		return struct{}{}, fsm.InvalidArgument
	case q.Partition == fsm.CatalogPartition:
		return struct{}{}, n.replaceCatalogReplica(ctx, group, q.Replica.Member)
	}
	status := group.Status()
	replica := partition.Voter{Replica: raftgroup.ReplicaID(q.Replica.Member, q.Replica.Number), Member: q.Replica.Member}
	if slices.Contains(status.Voters, replica) && !n.mover.HasQuorumWithout(ctx, q.Partition, replica, &status) {
		return struct{}{}, fsm.PreconditionFails
	}
	_, err := n.router.Command(ctx, fsm.CatalogPartition, fsm.ReplaceReplica{Partition: q.Partition, Replica: q.Replica})
	return struct{}{}, err
}

// replaceCatalogReplica confirms that the catalog has a quorum without the replica of a member, and removes the replicas
// of the member that no longer have its name.
func (n *Node) replaceCatalogReplica(ctx context.Context, group *partition.Group, member fsm.MemberID) error {
	hello, err := n.askHello(ctx, member)
	if err != nil {
		return err
	}
	status := group.Status()
	for _, v := range slices.Concat(status.Nonvoters, status.Voters) {
		if v.Member != member {
			continue
		}
		if slices.Contains(status.Voters, v) && !n.mover.HasQuorumWithout(ctx, fsm.CatalogPartition, v, &status) {
			return fsm.PreconditionFails
		}
		if v.Replica == hello.CatalogName() {
			continue
		}
		if err := group.RemoveReplica(ctx, v.Replica); err != nil {
			return err
		}
		n.log.InfoContext(ctx, "damaged replica of the catalog was removed", "peer", member, "replica", v.Replica)
		notify.WakeUp(n.reconcileNow) // adds the one that takes its place
	}
	return nil
}

// openCatalog opens this member's replica of the catalog. If its log is damaged, another replica takes its place when the
// others have a quorum without it, for which openCatalog waits.
func (n *Node) openCatalog(ctx context.Context, voters []partition.Voter) error {
	waiting, cancel := context.WithTimeout(ctx, catalogHealTimeout)
	defer cancel()
	for {
		identity := n.dataDir.Identity()
		number := identity.CatalogNumber()
		if number > raftgroup.CatalogReplica {
			voters = nil
		}
		err := n.dropFormerCatalogs(number)
		if err == nil {
			err = n.openReplica(ctx, fsm.CatalogPartition, number, voters)
		}
		if !errors.Is(err, partition.ErrLogDamaged) {
			return err
		}
		for n.renameCatalogReplica(waiting, number) != nil {
			if waiting.Err() != nil {
				return err
			}
			notify.Pause(waiting, catalogHealPause)
		}
	}
}

// renameCatalogReplica gives this member's replica of the catalog another name, if the others have a quorum without the
// present one.
func (n *Node) renameCatalogReplica(ctx context.Context, number uint32) error {
	if err := n.askReplaceCatalog(ctx, number); err != nil {
		n.log.WarnContext(ctx, "failed to have the damaged replica of the catalog replaced, will retry: the other members must have a quorum", "error", err)
		return err
	}
	if err := n.dataDir.Update(func(id *datadir.Identity) { id.CatalogReplica = number + 1 }); err != nil {
		return fmt.Errorf("record the name of a replica: %w", err)
	}
	n.log.WarnContext(ctx, "replica of the catalog has a damaged log, and another one takes its place", "number", number)
	return nil
}

func (n *Node) askReplaceCatalog(ctx context.Context, number uint32) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	_, err := replaceReplica.Ask(ctx, n.router.Leader(fsm.CatalogPartition), replaceReplicaQuery{Replica: fsm.Replica{Member: n.self, Number: number}})
	return err
}

// dropFormerCatalogs removes what is left of replicas of the catalog that this member has given up.
func (n *Node) dropFormerCatalogs(number uint32) error {
	for former := uint32(raftgroup.CatalogReplica); former < number; former++ {
		if !n.dataDir.HasReplica(fsm.CatalogPartition, former) {
			continue
		}
		if err := partition.Drop(n.raftLog, fsm.CatalogPartition, raftgroup.ReplicaID(n.self, former), n.dataDir.ReplicaPath(fsm.CatalogPartition, former)); err != nil {
			return err
		}
	}
	return nil
}

// healCatalog replaces this member's replica of the catalog when it has halted because its log is damaged, and asks for a
// place in the group for one that has replaced another.
func (n *Node) healCatalog(ctx context.Context) {
	group := n.group(fsm.CatalogPartition)
	if group == nil {
		return
	}
	number := n.replicaNumber(fsm.CatalogPartition)
	status := group.Status()
	if status.Halted == nil {
		if number > raftgroup.CatalogReplica && len(status.Voters) == 0 {
			if err := n.askReplaceCatalog(ctx, number); err != nil {
				n.log.InfoContext(ctx, "failed to have a former replica of the catalog removed, will retry", "error", err)
			}
		}
		return
	}
	if !errors.Is(status.Halted, partition.ErrLogDamaged) || n.renameCatalogReplica(ctx, number) != nil {
		return
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	n.setGroup(fsm.CatalogPartition, 0, nil)
	if err := group.Destroy(closing); err != nil {
		n.failStart(fmt.Errorf("remove the damaged replica of the catalog: %w", err))
		return
	}
	if err := n.openCatalog(ctx, nil); err != nil && ctx.Err() == nil {
		n.failStart(err)
	}
}
