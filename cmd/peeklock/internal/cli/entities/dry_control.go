package entities

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/peeklock/peeklock/admin/emulator"
	"github.com/peeklock/peeklock/fsm"
)

// dryControl answers as if it had done what package emulator asks for.
type dryControl struct {
	remoteControl

	made *sync.Map // the entities that would be created, by namespace and name
}

// In implements emulator.Control.
func (d dryControl) In(namespace fsm.Namespace) emulator.Entities {
	return dryEntities{remoteEntities{d.client.InNamespace(namespace.Name)}, d.made, namespace.Name}
}

// CreateNamespace implements emulator.Control.
func (d dryControl) CreateNamespace(_ context.Context, name string, settings fsm.NamespaceSettings, _ []fsm.AccessRule) (fsm.Namespace, error) {
	return fsm.Namespace{Name: name, Settings: settings}, nil
}

// dryEntities are the entities of one namespace; changes are not made.
type dryEntities struct {
	remoteEntities

	made      *sync.Map
	namespace string
}

func (d dryEntities) key(name string) string { return d.namespace + "\n" + strings.ToLower(name) }

// CreateEntity implements emulator.Entities. Like a member, it refuses to create what exists.
func (d dryEntities) CreateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, _ *fsm.Rule, _ []fsm.AccessRule) (fsm.Entity, error) {
	made := fsm.Entity{Kind: kind, Name: name, Settings: settings}
	switch found, _, err := d.Entity(ctx, kind, name); {
	case err == nil:
		return found, fsm.EntityExists
	case !errors.Is(err, fsm.EntityNotFound):
		return found, err
	}
	d.made.Store(d.key(name), made)
	return made, nil
}

// Entity implements emulator.Entities.
func (d dryEntities) Entity(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error) {
	if made, found := d.made.Load(d.key(name)); found {
		return made.(fsm.Entity), fsm.Counts{}, nil //nolint:forcetypeassert // only entities are stored
	}
	return d.remoteEntities.Entity(ctx, kind, name)
}

// UpdateEntity implements emulator.Entities.
func (d dryEntities) UpdateEntity(_ context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error) {
	return fsm.Entity{Kind: kind, Name: name, Settings: settings}, nil
}

// PutRule implements emulator.Entities.
func (dryEntities) PutRule(context.Context, string, fsm.Rule, bool) error { return nil }

// DropRule implements emulator.Entities.
func (dryEntities) DropRule(context.Context, string, string) error { return nil }

// Rules implements emulator.Entities.
func (d dryEntities) Rules(ctx context.Context, subscription string, skip, most int) ([]fsm.Rule, error) {
	if _, found := d.made.Load(d.key(subscription)); found {
		return nil, nil
	}
	return d.remoteEntities.Rules(ctx, subscription, skip, most)
}
