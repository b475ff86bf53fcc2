package router

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// How long a change of the catalog waits until this member's replica has it, and how often it looks.
const (
	awaitCatalogMax   = 2 * time.Second
	awaitCatalogEvery = 10 * time.Millisecond
)

// Access returns the access rules of the entity that a path names (of its topic, for a
// subscription) and of the namespace, as our own replica of the catalog knows them. They
// contain secrets and must not be changed. It does not block.
func (r *Router) Access(namespace fsm.NamespaceID, path string) (own, shared []fsm.AccessRule) {
	r.viewCatalog(func(c *fsm.Catalog) { own, shared = c.Access(namespace, path) })
	return own, shared
}

// NamespaceName returns the name of a namespace, "" when our own replica of the catalog does not
// know it. It does not block.
func (r *Router) NamespaceName(id fsm.NamespaceID) (name string) {
	r.viewCatalog(func(c *fsm.Catalog) {
		namespace, _ := c.NamespaceByID(id)
		name = namespace.Name
	})
	return name
}

// viewCatalog calls a function with our own replica of the catalog, if it is open.
func (r *Router) viewCatalog(look func(*fsm.Catalog)) {
	if group := r.transport.LocalReplica(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) {
			if c := raftgroup.Catalog(m); c != nil {
				look(c)
			}
		})
	}
}

// AwaitCatalog waits until our own replica of the catalog has a change that its leader has made, so
// that the caller can use it here at once, for at most awaitCatalogMax. It is no error if the
// replica is further behind.
func (r *Router) AwaitCatalog(ctx context.Context, seen func(*fsm.Catalog) bool) {
	ctx, cancel := context.WithTimeout(ctx, awaitCatalogMax)
	defer cancel()
	ticker := time.NewTicker(awaitCatalogEvery)
	defer ticker.Stop()
	for {
		changed, has := r.transport.Changes(), false
		r.viewCatalog(func(c *fsm.Catalog) { has = seen(c) })
		if has {
			return
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// awaitNamespace waits until our own replica has that version of a namespace, or a later one.
func (r *Router) awaitNamespace(ctx context.Context, id fsm.NamespaceID, version uint64) {
	r.AwaitCatalog(ctx, func(c *fsm.Catalog) bool {
		namespace, found := c.NamespaceByID(id)
		return found && namespace.Version >= version
	})
}

// awaitAccess waits until our own replica has that version of the rules of an entity.
func (r *Router) awaitAccess(ctx context.Context, id fsm.EntityID, version uint64) {
	r.AwaitCatalog(ctx, func(c *fsm.Catalog) bool {
		entity, found := c.ByID(id)
		return found && entity.AccessVersion >= version
	})
}
