package replicas

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	closeTimeout       = 20 * time.Second // for a damaged replica to close
)

// Replace asks the leader of a partition to replace a replica. Its errors wrap an fsm.Code.
var Replace = rpc.Query[ReplaceQuery, struct{}]{Kind: rpc.QueryReplaceReplica}

// ReplaceQuery asks the leader of a partition to replace a replica whose log is damaged. PreconditionFails means that
// the group needs the replica for a quorum. For the catalog, whose replicas are numbered by their members, the leader confirms
// that the group does not need the replica, and removes it once its member has chosen another number.
type ReplaceQuery struct {
	Partition fsm.PartitionID `json:"Partition"`
	Replica   fsm.Replica     `json:"Replica"`
}

// Healer replaces the damaged replicas of a Set. Its methods may be called concurrently, except OpenCatalog and HealCatalog.
type Healer struct {
	*Set

	Leader func(id fsm.PartitionID) rpc.Asker        // asks the leader of a partition
	Go     func(task func(ctx context.Context)) bool // runs a task until the member closes, false while it closes

	healing atomic.Bool // a task has damaged replicas replaced
}

// Heal has the damaged replicas of message partitions replaced, in a task of its own. Only one such task runs at a
// time. It is called repeatedly: a replica that was not replaced is found again.
func (h *Healer) Heal() {
	if !h.healing.CompareAndSwap(false, true) {
		return
	}
	h.Log.StopDamaged()
	damaged := h.takeDamaged()
	if len(damaged) == 0 || !h.Go(func(ctx context.Context) {
		defer h.healing.Store(false)
		for id, number := range damaged {
			h.healReplica(ctx, id, number)
		}
	}) {
		h.healing.Store(false)
	}
}

func (h *Healer) healReplica(ctx context.Context, id fsm.PartitionID, number uint32) {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	query := ReplaceQuery{Partition: id, Replica: fsm.Replica{Member: h.Self, Number: number}}
	if _, err := Replace.Ask(ctx, h.Leader(id), query); err != nil {
		h.Logger.WarnContext(ctx, "failed to replace a damaged replica, will retry: the other replicas must have a quorum", "partition", id, "number", number, "error", err)
		return
	}
	h.Logger.WarnContext(ctx, "replica with a damaged log was taken out of its partition, and another one takes its place", "partition", id, "number", number)
}

// OpenCatalog opens this member's replica of the catalog. If its log is damaged, another replica takes its place when the
// others have a quorum without it, for which OpenCatalog waits.
func (h *Healer) OpenCatalog(ctx context.Context, voters []partition.Voter) error {
	waiting, cancel := context.WithTimeout(ctx, catalogHealTimeout)
	defer cancel()
	for {
		identity := h.Dir.Identity()
		number := identity.CatalogNumber()
		if number > raftgroup.CatalogReplica {
			voters = nil
		}
		err := h.dropFormerCatalogs(number)
		if err == nil {
			err = h.Open(ctx, fsm.CatalogPartition, number, voters)
		}
		if !errors.Is(err, partition.ErrLogDamaged) {
			return err
		}
		for h.renameCatalogReplica(waiting, number) != nil {
			if waiting.Err() != nil {
				return err
			}
			notify.Pause(waiting, catalogHealPause)
		}
	}
}

// renameCatalogReplica gives this member's replica of the catalog another name, if the others have a quorum without the
// present one.
func (h *Healer) renameCatalogReplica(ctx context.Context, number uint32) error {
	if err := h.askReplaceCatalog(ctx, number); err != nil {
		h.Logger.WarnContext(ctx, "failed to replace the damaged replica of the catalog, will retry: the other members must have a quorum", "error", err)
		return err
	}
	if err := h.Dir.Update(func(id *datadir.Identity) { id.CatalogReplica = number + 1 }); err != nil {
		return fmt.Errorf("record the name of a replica: %w", err)
	}
	h.Logger.WarnContext(ctx, "replica of the catalog has a damaged log, and another one takes its place", "number", number)
	return nil
}

func (h *Healer) askReplaceCatalog(ctx context.Context, number uint32) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	_, err := Replace.Ask(ctx, h.Leader(fsm.CatalogPartition), ReplaceQuery{Replica: fsm.Replica{Member: h.Self, Number: number}})
	return err
}

// dropFormerCatalogs removes what is left of replicas of the catalog that this member has given up.
func (h *Healer) dropFormerCatalogs(number uint32) error {
	for former := uint32(raftgroup.CatalogReplica); former < number; former++ {
		if !h.Dir.HasReplica(fsm.CatalogPartition, former) {
			continue
		}
		if err := partition.Drop(h.Log, fsm.CatalogPartition, raftgroup.ReplicaID(h.Self, former), h.Dir.ReplicaPath(fsm.CatalogPartition, former)); err != nil {
			return err
		}
	}
	return nil
}

// HealCatalog replaces this member's replica of the catalog when it has halted because its log is damaged, and asks for a
// place in the group for one that has replaced another. An error means that the member will never be ready.
func (h *Healer) HealCatalog(ctx context.Context) error {
	group := h.Group(fsm.CatalogPartition)
	if group == nil {
		return nil
	}
	number := h.Number(fsm.CatalogPartition)
	status := group.Status()
	if status.Halted == nil {
		if number > raftgroup.CatalogReplica && len(status.Voters) == 0 {
			if err := h.askReplaceCatalog(ctx, number); err != nil {
				h.Logger.InfoContext(ctx, "failed to remove a former replica of the catalog, will retry", "error", err)
			}
		}
		return nil
	}
	if !errors.Is(status.Halted, partition.ErrLogDamaged) || h.renameCatalogReplica(ctx, number) != nil {
		return nil
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	h.unregister(fsm.CatalogPartition)
	if err := group.Destroy(closing); err != nil {
		return fmt.Errorf("remove the damaged replica of the catalog: %w", err)
	}
	if err := h.OpenCatalog(ctx, nil); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
