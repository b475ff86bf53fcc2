package entities

import (
	"context"
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// Changes returns a channel that is closed when the catalog may have changed.
func (r *Manager) Changes() <-chan struct{} { return r.transport.Changes() }

// Deleted returns those of the entities that have been deleted, as far as this member's replica of the catalog knows. It
// does not block.
func (r *Manager) Deleted(ids []fsm.EntityID) (deleted []fsm.EntityID) {
	r.replicas.ViewCatalog(func(c *catalog.Machine) {
		for _, id := range ids {
			if c.Deleted(id) {
				deleted = append(deleted, id)
			}
		}
	})
	return deleted
}

// Resolve finds the entity that path names, regardless of case; a subscription is
// topic/Subscriptions/name. A path that ends in /$DeadLetterQueue, or in
// /$Transfer/$DeadLetterQueue, names that sub-queue; a topic has the second only. Errors wrap an
// fsm.Code: EntityNotFound, or ServerBusy while the catalog is not loaded or has no leader.
func (r NamespaceView) Resolve(ctx context.Context, path string) (fsm.EntityRef, error) {
	name, sub := splitPath(path)
	// Without a leader, names are still resolved: a partition that has one serves.
	r.confirmed.Await(ctx)
	entity, found, loaded := fsm.Entity{}, false, false
	r.replicas.ViewCatalog(func(c *catalog.Machine) {
		loaded = c.ClusterID() != ""
		entity, found = c.Lookup(r.id, name)
	})
	if !loaded {
		return fsm.EntityRef{}, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	// The local replica may be behind: an entity that was just created at another member must be found, and
	// one that was just enabled there, or that just stopped forwarding, must not be refused, since
	// clients do not retry then.
	if !found || entity.Settings.Status != fsm.Active || sub == fsm.MainQueue && entity.Settings.ForwardTo != "" {
		newest, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: name})
		if err != nil {
			return fsm.EntityRef{}, fmt.Errorf("%q: %w", name, err)
		}
		entity = newest
	}
	if entity.Kind == fsm.TopicEntity && sub == fsm.DeadLetterQueue {
		return fsm.EntityRef{}, fmt.Errorf("%q: %w: a topic has no dead-letter queue, its subscriptions have", path, fsm.EntityNotFound)
	}
	return fsm.EntityRef{Entity: entity, Sub: sub}, nil
}

// splitPath separates the sub-queue from a path.
func splitPath(path string) (name string, sub fsm.SubQueue) {
	path = strings.Trim(path, "/")
	for _, known := range [...]struct {
		suffix string
		sub    fsm.SubQueue
	}{ // the longer one first: it ends in the other
		{"/$transfer/$deadletterqueue", fsm.TransferDeadLetterQueue},
		{"/$deadletterqueue", fsm.DeadLetterQueue},
	} {
		if at := len(path) - len(known.suffix); at > 0 && strings.EqualFold(path[at:], known.suffix) {
			return path[:at], known.sub
		}
	}
	return path, fsm.MainQueue
}
