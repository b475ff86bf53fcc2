package cluster

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// How long a change of the catalog waits to be seen here before it is told as done, and
// how often that is looked at.
const (
	awaitCatalogMax   = 2 * time.Second
	awaitCatalogEvery = 10 * time.Millisecond
)

// Access is the access rules of the entity that a path names (of its topic, for a
// subscription) and of the namespace, as our own replica of the catalog knows them. They
// hold secrets, and are only read. It does not block.
func (r *Router) Access(namespace fsm.NamespaceID, path string) (own, shared []fsm.AccessRule) {
	r.viewCatalog(func(c *fsm.Catalog) { own, shared = c.Access(namespace, path) })
	return own, shared
}

// NamespaceName is how a namespace is called, "" when our own replica of the catalog does not
// know it. It does not block.
func (r *Router) NamespaceName(id fsm.NamespaceID) (name string) {
	r.viewCatalog(func(c *fsm.Catalog) {
		namespace, _ := c.NamespaceByID(id)
		name = namespace.Name
	})
	return name
}

// viewCatalog looks at our own replica of the catalog, if there is one.
func (r *Router) viewCatalog(look func(*fsm.Catalog)) {
	if group := r.transport.localReplica(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) {
			if c := catalogOf(m); c != nil {
				look(c)
			}
		})
	}
}

// awaitCatalog waits until our own replica of the catalog has a change that its leader has made,
// for at most seenWaitMax: then who made it can use it here at once. A replica that is
// further behind than that is no error; it will follow.
func (r *Router) awaitCatalog(ctx context.Context, seen func(*fsm.Catalog) bool) {
	ctx, cancel := context.WithTimeout(ctx, awaitCatalogMax)
	defer cancel()
	ticker := time.NewTicker(awaitCatalogEvery)
	defer ticker.Stop()
	for {
		changed, has := r.transport.changes(), false
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
	r.awaitCatalog(ctx, func(c *fsm.Catalog) bool {
		namespace, found := c.NamespaceByID(id)
		return found && namespace.Version >= version
	})
}

// awaitAccess waits until our own replica has that version of the rules of an entity.
func (r *Router) awaitAccess(ctx context.Context, id fsm.EntityID, version uint64) {
	r.awaitCatalog(ctx, func(c *fsm.Catalog) bool {
		entity, found := c.ByID(id)
		return found && entity.AccessVersion >= version
	})
}
