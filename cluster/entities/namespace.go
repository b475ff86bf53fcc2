package entities

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// NamespaceView is a Manager with the operations on the entities of one namespace that take names.
type NamespaceView struct {
	*Manager

	id fsm.NamespaceID
}

// In returns the view of a namespace. It does not check that the namespace exists: the operations
// do. It does not block.
func (r *Manager) In(namespace fsm.NamespaceID) NamespaceView { return NamespaceView{r, namespace} }

// NamespaceByHost returns the namespace that a host name selects in this member's replica of the catalog,
// by default the default namespace. A member that has just started waits up to [confirm.StartWaitMax] for the
// catalog's leader. The error wraps ServerBusy: the name could be that
// of a namespace which this member does not know yet.
func (r *Manager) NamespaceByHost(ctx context.Context, host string) (id fsm.NamespaceID, err error) {
	id = fsm.DefaultNamespace
	isConfirmed, found := r.confirmed.Await(ctx), false
	r.replicas.ViewCatalog(func(c *catalog.Machine) { id, found = c.FindHost(host) })
	if !found && !isConfirmed {
		return id, fmt.Errorf("the host %.100q may select a namespace that this member does not know yet, because the catalog has no leader: %w", host, fsm.ServerBusy)
	}
	return id, nil
}

// Namespace finds a namespace by name at the catalog's leader. Its access rules hold
// secrets. Errors wrap EntityNotFound, ServerBusy or Timeout.
func (r *Manager) Namespace(ctx context.Context, name string) (fsm.Namespace, error) {
	namespace, err := findNamespace.At(ctx, r, namespaceQuery{Name: name})
	if err != nil {
		return fsm.Namespace{}, fmt.Errorf("namespace %q: %w", name, err)
	}
	return namespace, nil
}

// Namespaces lists namespaces by name, regardless of case, from the first after the given name, at
// most max (1000). Errors wrap ServerBusy or Timeout.
func (r *Manager) Namespaces(ctx context.Context, after string, max int) ([]fsm.Namespace, error) {
	list, err := listNamespaces.At(ctx, r, namespacesQuery{After: after, Max: max})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return list, nil
}

// CreateNamespace creates a namespace and returns when this member knows it; the others know it
// a moment later. Errors wrap EntityExists, InvalidArgument, QuotaExceeded, ServerBusy or Timeout.
func (r *Manager) CreateNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings, rules []fsm.AccessRule) (fsm.Namespace, error) {
	result, err := r.Command(ctx, fsm.CatalogPartition, fsm.CreateNamespace{Name: name, Settings: settings, Access: rules})
	if err != nil {
		return fsm.Namespace{}, fmt.Errorf("create namespace %q: %w", name, r.explainNamespace(ctx, name, settings, err))
	}
	return r.awaitChanged(ctx, name, result.Namespace)
}

// awaitChanged returns a namespace as it is now, once this member knows it.
func (r *Manager) awaitChanged(ctx context.Context, name string, id fsm.NamespaceID) (fsm.Namespace, error) {
	namespace, err := findNamespace.At(ctx, r, namespaceQuery{ID: id})
	if err != nil {
		return fsm.Namespace{}, fmt.Errorf("namespace %q: %w", name, err)
	}
	r.awaitNamespace(ctx, id, namespace.Version)
	return namespace, nil
}

// UpdateNamespace changes the settings of a namespace; entities that exceed a new limit
// stay as they are. Errors wrap EntityNotFound, EntityExists (a host name is in use),
// InvalidArgument, ServerBusy or Timeout.
func (r *Manager) UpdateNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings) (fsm.Namespace, error) {
	namespace, err := r.Namespace(ctx, name)
	if err == nil {
		_, err = r.Command(ctx, fsm.CatalogPartition, fsm.UpdateNamespace{Namespace: namespace.ID, Settings: settings})
	}
	if err != nil {
		return fsm.Namespace{}, fmt.Errorf("update namespace %q: %w", name, r.explainNamespace(ctx, name, settings, err))
	}
	return r.awaitChanged(ctx, name, namespace.ID)
}

// DeleteNamespace removes a namespace without entities. Errors wrap PreconditionFails (it has some),
// NotAllowed (the default namespace), EntityNotFound, ServerBusy or Timeout.
func (r *Manager) DeleteNamespace(ctx context.Context, name string) error {
	namespace, err := r.Namespace(ctx, name)
	if err == nil {
		_, err = r.Command(ctx, fsm.CatalogPartition, fsm.DeleteNamespace{Namespace: namespace.ID})
	}
	if errors.Is(err, fsm.PreconditionFails) {
		err = fmt.Errorf("%w: it has queues or topics: delete them first", err)
	}
	if errors.Is(err, fsm.NotAllowed) {
		err = fmt.Errorf("%w: the default namespace cannot be deleted", err)
	}
	if err != nil {
		return fmt.Errorf("delete namespace %q: %w", name, err)
	}
	r.AwaitCatalog(ctx, func(c *catalog.Machine) bool {
		_, there := c.NamespaceByID(namespace.ID)
		return !there
	})
	return nil
}

// Describe returns the namespace as the catalog's leader knows it.
func (r NamespaceView) Describe(ctx context.Context) (fsm.Namespace, error) {
	namespace, err := findNamespace.At(ctx, r, namespaceQuery{ID: r.id})
	if err != nil {
		return fsm.Namespace{}, fmt.Errorf("namespace: %w", err)
	}
	return namespace, nil
}

// SetAccess replaces the access rules of a queue or topic, or of the namespace when name is "".
// version is the version of the rules that were changed, or 0 to replace any. When it returns, this
// member uses the new rules; the others do a moment later. Errors wrap EntityNotFound,
// PreconditionFails, InvalidArgument, ServerBusy or Timeout.
func (r NamespaceView) SetAccess(ctx context.Context, name string, version uint64, rules []fsm.AccessRule) error {
	command := fsm.SetAccess{Namespace: r.id, Version: version, Rules: rules}
	if name != "" {
		entity, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: name})
		if err != nil {
			return fmt.Errorf("access rules of %q: %w", name, err)
		}
		if entity.Kind == fsm.SubscriptionEntity {
			return fmt.Errorf("access rules of %q: %w: a subscription has those of its topic", name, fsm.InvalidArgument)
		}
		command.Entity = entity.ID
	}
	result, err := r.Command(ctx, fsm.CatalogPartition, command)
	switch {
	case errors.Is(err, fsm.PreconditionFails):
		return fmt.Errorf("access rules of %q: %w: they were changed meanwhile", name, err)
	case err != nil:
		return fmt.Errorf("access rules of %q: %w", name, err)
	case name == "":
		r.awaitNamespace(ctx, r.id, result.Version)
	default:
		r.awaitAccess(ctx, command.Entity, result.Version)
	}
	return nil
}
