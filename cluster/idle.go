package cluster

import (
	"context"
	"errors"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// goneStepMax is how many entities one step buries; the rest comes at once in the next.
const goneStepMax = 256

// effect is called by a group that leads. What is to be done lies in the machine, for
// the next leader too; this is only the alarm clock.
func (n *Node) effect(id fsm.PartitionID, e fsm.Effect) {
	if e.Kind == fsm.EffectIdle {
		notify.WakeUp(n.wake)
	}
	if e.Kind == fsm.EffectForward {
		n.carrier.wake(fsm.Outbox{Partition: id, Address: e.Address})
	}
}

// bury takes the entities that deleted themselves out of the catalog, a topic with its
// subscriptions. Their partition has dropped the messages, keeps a tombstone that nothing
// brings to life, and the leader of the partition carries the news, whoever that is: each
// step may be done twice, or be taken up by another leader.
//
//	idle for too long: tombstone -> name is freed -> tombstone goes -> catalog forgets
func (n *Node) bury(ctx context.Context, group *partition.Group) {
	var gone []fsm.EntityID
	group.View(func(m partition.Machine) {
		if queues := queuesOf(m); queues != nil {
			gone = queues.Gone()
		}
	})
	if len(gone) == 0 {
		return
	}
	if len(gone) > goneStepMax {
		gone = gone[:goneStepMax]
		notify.WakeUp(n.wake)
	}
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	id := group.Status().ID
	for _, entity := range gone {
		if err := n.router.bury(ctx, id, entity); err != nil {
			n.log.WarnContext(ctx, "delete an idle entity", "entity_id", uint64(entity), "partition", id, "error", err)
			return // the next round tries again
		}
	}
}

// bury deletes one entity that deleted itself.
func (r *Router) bury(ctx context.Context, at fsm.PartitionID, id fsm.EntityID) error {
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
	if err := r.drop(ctx, entity); err != nil {
		return err
	}
	r.log.InfoContext(ctx, "entity was idle and is deleted", "kind", entity.Kind.String(), "entity", entity.Name, "partition", at)
	return nil
}
