package reconcile

import (
	"context"
	"errors"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// removeIdleMax is how many entities one step removes; the next step follows at once.
const removeIdleMax = 256

// removeIdleEntities removes entities that deleted themselves from the catalog, a topic with its
// subscriptions. Their partition has dropped the messages and keeps a tombstone; the leader of the
// partition does the rest. Each step may be repeated, also by another leader.
//
//	idle for too long: tombstone -> name freed -> tombstone removed -> removed from the catalog
func (r *Reconciler) removeIdleEntities(ctx context.Context, group *partition.Group) {
	var gone []fsm.EntityID
	group.View(func(m partition.Machine) {
		if queues := raftgroup.Queues(m); queues != nil {
			gone = queues.Tombstones()
		}
	})
	if len(gone) == 0 {
		return
	}
	if len(gone) > removeIdleMax {
		gone = gone[:removeIdleMax]
		r.Wake()
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	id := group.Status().ID
	for _, entity := range gone {
		if err := r.Router.RemoveIdleEntity(ctx, id, entity); err != nil && !errors.Is(err, fsm.EntityNotFound) {
			r.Logger.WarnContext(ctx, "failed to remove an idle entity, will retry", "entity_id", uint64(entity), "partition", id, "error", err)
			return // the next round retries
		}
	}
}
