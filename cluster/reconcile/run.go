package reconcile

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// Run compares, for the groups that this member leads, the actual with the desired state and executes what is missing, until
// ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	ticker := time.NewTicker(r.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-r.now:
		}
		if group := r.Replicas.Group(fsm.CatalogPartition); group != nil && group.Status().IsLeader {
			r.reconcileCatalog(ctx, group)
		} else {
			r.Balancer.Reset()
			r.Levels.Withdraw()
		}
		r.recordSelf(ctx)
		r.AskIfRemoved(ctx)
		r.reconcileGroups(ctx, r.Node.Partitions())
	}
}

// reconcileCatalog does the work of the catalog's leader.
func (r *Reconciler) reconcileCatalog(ctx context.Context, group *partition.Group) {
	founded := false
	group.View(func(m partition.Machine) { founded = raftgroup.Catalog(m).ClusterID() != "" })
	if !founded {
		r.bootstrapCluster(ctx, group)
		return
	}
	r.addNewMembers(ctx, group)
	r.reconcileCatalogVoters(ctx, group)
	members := r.countedMembers(group)
	r.Levels.Raise(ctx, group, members)
	r.Balancer.Run(members)
	r.Router.DeleteDropped(ctx, group)
}

// reconcileGroups does the work of the leaders of message partitions.
func (r *Reconciler) reconcileGroups(ctx context.Context, placed []fsm.Partition) {
	groups := r.Replicas.All()
	for i := range placed {
		part := &placed[i]
		group := groups[part.ID]
		if group == nil || ctx.Err() != nil {
			continue
		}
		status := group.Status()
		if !status.IsLeader {
			continue
		}
		if !part.Formed {
			r.reportFormed(ctx, part.ID)
		}
		r.removeIdleEntities(ctx, group)
		r.Mover.Start(part, group)
		r.Mover.TransferToPreferred(ctx, part, group)
	}
}

// reportFormed records that the group has a leader: from then on no member forms the group again, and a replica
// that opens empty waits until it is filled.
func (r *Reconciler) reportFormed(ctx context.Context, id fsm.PartitionID) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if _, err := r.Router.Command(ctx, fsm.CatalogPartition, fsm.PartitionFormed{Partition: id}); err != nil {
		r.Logger.DebugContext(ctx, "failed to report a formed partition, will retry", "partition", id, "error", err)
	}
}
