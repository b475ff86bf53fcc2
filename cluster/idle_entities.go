package cluster

import (
	"context"
	"errors"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// removeIdleMax is how many entities one step buries; the rest comes at once in the next.
const removeIdleMax = 256

// handleEffect is called by a group that leads. What is to be done lies in the machine, for
// the next leader too; this is only the alarm clock.
func (n *Node) handleEffect(id fsm.PartitionID, e fsm.Effect) {
	if e.Kind == fsm.EffectIdle {
		notify.WakeUp(n.reconcileNow)
	}
	if e.Kind == fsm.EffectForward {
		n.forwarder.wake(fsm.Outbox{Partition: id, Address: e.Address})
	}
}

// removeIdleEntities takes the entities that deleted themselves out of the catalog, a topic with its
// subscriptions. Their partition has dropped the messages, keeps a tombstone that nothing
// brings to life, and the leader of the partition carries the news, whoever that is: each
// step may be done twice, or be taken up by another leader.
//
//	idle for too long: tombstone -> name is freed -> tombstone goes -> catalog forgets
func (n *Node) removeIdleEntities(ctx context.Context, group *partition.Group) {
	var gone []fsm.EntityID
	group.View(func(m partition.Machine) {
		if queues := queuesOf(m); queues != nil {
			gone = queues.Tombstones()
		}
	})
	if len(gone) == 0 {
		return
	}
	if len(gone) > removeIdleMax {
		gone = gone[:removeIdleMax]
		notify.WakeUp(n.reconcileNow)
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	id := group.Status().ID
	for _, entity := range gone {
		if err := n.router.removeIdleEntity(ctx, id, entity); err != nil {
			n.log.WarnContext(ctx, "delete an idle entity", "entity_id", uint64(entity), "partition", id, "error", err)
			return // the next round tries again
		}
	}
}

// removeIdleEntity deletes one entity that deleted itself.
func (r *Router) removeIdleEntity(ctx context.Context, at fsm.PartitionID, id fsm.EntityID) error {
	entity, err := r.lookup(ctx, lookupQuery{ID: id})
	if errors.Is(err, fsm.EntityNotFound) {
		// Forgotten already, and an id is never given twice: only the tombstone is left.
		_, err = r.command(ctx, at, fsm.DropEntity{Entity: id})
		return err
	}
	if err != nil {
		return err
	}
	if !entity.Dropping {
		_, err = r.command(ctx, fsm.CatalogPartition, fsm.DeleteEntity{Entity: entity.ID})
		if err != nil && !errors.Is(err, fsm.EntityNotFound) { // deleted by somebody meanwhile
			return err
		}
	}
	if err := r.dropEntity(ctx, entity); err != nil {
		return err
	}
	r.log.InfoContext(ctx, "entity was idle and is deleted", "kind", entity.Kind.String(), "entity", entity.Name, "partition", at)
	return nil
}
