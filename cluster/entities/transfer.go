package entities

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// EntityByName finds an entity by name in this member's catalog, or at the catalog's leader when it is
// not there or newest is set. Errors wrap EntityNotFound, ServerBusy or Timeout.
func (r *Manager) EntityByName(ctx context.Context, namespace fsm.NamespaceID, name string, newest bool) (entity fsm.Entity, err error) {
	found := false
	if !newest {
		r.confirmed.Await(ctx)
		r.replicas.ViewCatalog(func(c *catalog.Machine) { entity, found = c.Lookup(namespace, name) })
	}
	if !found {
		return r.lookup(ctx, EntityQuery{Namespace: namespace, Name: name})
	}
	return entity, nil
}

// EntityByID finds an entity or shard by id in this member's catalog, or at the catalog's leader.
func (r *Manager) EntityByID(ctx context.Context, id fsm.EntityID) (fsm.Entity, error) {
	entity, found := r.KnownEntity(id)
	if !found {
		return r.lookup(ctx, EntityQuery{ID: id})
	}
	return entity, nil
}

// KnownEntity finds an entity or shard in this member's replica of the catalog.
func (r *Manager) KnownEntity(id fsm.EntityID) (entity fsm.Entity, found bool) {
	r.replicas.ViewCatalog(func(c *catalog.Machine) { entity, found = c.ByID(id) })
	return entity, found
}

// Transfer submits a batch to the partition of the destination. If only the catalog knows the
// destination, its creation was interrupted, and it is put there first. Errors are temporary;
// EntityNotFound as a result is final.
func (r *Manager) Transfer(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) (fsm.Result, error) {
	result, err := r.Command(ctx, to, command)
	if errors.Is(err, fsm.EntityNotFound) {
		err = r.putShard(ctx, command.Entity)
		if errors.Is(err, fsm.EntityNotFound) {
			return result, nil
		}
		if err != nil {
			return result, fmt.Errorf("complete the creation of entity %d: %w", command.Entity, err)
		}
		result, err = r.Command(ctx, to, command)
	}
	if err != nil && result.Code == fsm.OK {
		return result, err // ctx has ended
	}
	return result, nil
}
