package entities

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// How long a caller waits until this member's replica of the catalog has a change, and how often it polls.
const (
	awaitCatalogMax   = 2 * time.Second
	awaitCatalogEvery = 10 * time.Millisecond
)

// Access returns the access rules of the entity that a path names (of its topic, for a
// subscription) and of the namespace, from this member's replica of the catalog. They
// contain secrets and must not be changed. It does not block.
func (r *Manager) Access(namespace fsm.NamespaceID, path string) (own, shared []fsm.AccessRule) {
	r.replicas.ViewCatalog(func(c *catalog.Machine) { own, shared = c.Access(namespace, path) })
	return own, shared
}

// AwaitConfirmed reports whether the access rules that this member has may be believed. A member that has just started waits up to
// [confirm.StartWaitMax] for the catalog's leader; one that is cut off from it believes its rules for [confirm.ValidFor].
func (r *Manager) AwaitConfirmed(ctx context.Context) bool { return r.confirmed.Await(ctx) }

// NamesEntity reports whether a queue or topic has this name, in any case, as far as this member's replica of the catalog
// knows. It does not block.
func (r *Manager) NamesEntity(namespace fsm.NamespaceID, name string) (found bool) {
	r.replicas.ViewCatalog(func(c *catalog.Machine) { _, found = c.Lookup(namespace, name) })
	return found
}

// NamespaceName returns the name of a namespace, or "" when this member's replica of the catalog does
// not contain it. It does not block.
func (r *Manager) NamespaceName(id fsm.NamespaceID) (name string) {
	r.replicas.ViewCatalog(func(c *catalog.Machine) {
		namespace, _ := c.NamespaceByID(id)
		name = namespace.Name
	})
	return name
}

// AwaitCatalog waits, for at most awaitCatalogMax, until this member's replica of the catalog has a change
// that its leader has made, so that the caller can use it here immediately. A replica that is further
// behind is not an error.
func (r *Manager) AwaitCatalog(ctx context.Context, seen func(*catalog.Machine) bool) {
	ctx, cancel := context.WithTimeout(ctx, awaitCatalogMax)
	defer cancel()
	ticker := time.NewTicker(awaitCatalogEvery)
	defer ticker.Stop()
	for {
		changed, has := r.transport.Changes(), false
		r.replicas.ViewCatalog(func(c *catalog.Machine) { has = seen(c) })
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

// awaitNamespace waits until this member's replica has that version of a namespace, or a later one.
func (r *Manager) awaitNamespace(ctx context.Context, id fsm.NamespaceID, version uint64) {
	r.AwaitCatalog(ctx, func(c *catalog.Machine) bool {
		namespace, found := c.NamespaceByID(id)
		return found && namespace.Version >= version
	})
}

// awaitAccess waits until this member's replica has that version of the rules of an entity.
func (r *Manager) awaitAccess(ctx context.Context, id fsm.EntityID, version uint64) {
	r.AwaitCatalog(ctx, func(c *catalog.Machine) bool {
		entity, found := c.ByID(id)
		return found && entity.AccessVersion >= version
	})
}
