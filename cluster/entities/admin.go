package entities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// CreateEntity creates a queue or topic in the partition with the fewest entities, or a subscription,
// named by its path, in the partition of its topic. rule is the first rule of a subscription, nil for
// the default. A MaxMessageBytes of 0 means the default, or the limit of the namespace if that is
// less. When it returns, every member can use the entity: one whose catalog is behind asks the
// catalog's leader; its own access rules are in force at this member, and a moment later at the
// others. Errors wrap EntityExists,
// EntityNotFound (no such topic), InvalidArgument, QuotaExceeded, ServerBusy or Timeout.
func (r NamespaceView) CreateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error) {
	entity, err := r.create(ctx, kind, name, settings, rule, access)
	if err != nil {
		return fsm.Entity{}, fmt.Errorf("create %s %q: %w", kind, name, err)
	}
	return entity, nil
}

func (r NamespaceView) create(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error) {
	if err := checkNew(kind, name, rule); err != nil {
		return fsm.Entity{}, err
	}
	namespace, err := r.namespaceLimits(ctx)
	if err != nil {
		return fsm.Entity{}, err
	}
	settings = withMessageSize(&namespace, settings)
	if err := checkLimits(&namespace, kind, settings, fsm.EntitySettings{}); err != nil {
		return fsm.Entity{}, err
	}
	if err := r.checkSettings(ctx, kind, name, settings, fsm.EntitySettings{}); err != nil {
		return fsm.Entity{}, err
	}
	command, err := r.withPlacement(ctx, fsm.CreateEntity{Kind: kind, Name: name, Settings: settings, Rule: rule, Access: access})
	if err != nil {
		return fsm.Entity{}, err
	}
	result, err := r.Command(ctx, fsm.CatalogPartition, command)
	if err != nil {
		return fsm.Entity{}, explainCreate(&namespace, kind, explainLimits(&namespace, kind, settings, err))
	}
	entity, err := r.PutEntity(ctx, result.Entity)
	if len(access) > 0 {
		r.awaitAccess(ctx, result.Entity, 1)
	}
	if errors.Is(err, fsm.QuotaExceeded) {
		err = errors.Join(explainRules(err), r.undoCreate(ctx, result.Entity))
	}
	return entity, err
}

// undoCreate deletes an entity that its partition refuses permanently because the topic of a
// subscription cannot hold its rule. Otherwise the entity would be listed but unusable.
func (r *Manager) undoCreate(ctx context.Context, id fsm.EntityID) error {
	entity, err := r.lookup(ctx, EntityQuery{ID: id})
	if err == nil {
		_, err = r.Command(ctx, fsm.CatalogPartition, fsm.DeleteEntity{Entity: id})
	}
	if err == nil {
		err = r.dropEntity(ctx, entity)
	}
	if err != nil && !errors.Is(err, fsm.EntityNotFound) {
		return fmt.Errorf("undo the creation of entity %d: %w", id, err)
	}
	return nil
}

// withPlacement adds the partition of a new entity to the command: the partitions with the fewest
// entities, or that of the topic of a subscription, whose spelling the path adopts.
func (r NamespaceView) withPlacement(ctx context.Context, command fsm.CreateEntity) (fsm.CreateEntity, error) {
	var err error
	command.Namespace = r.id
	if command.Kind != fsm.SubscriptionEntity {
		var partitions []fsm.PartitionID
		if partitions, err = r.leastLoaded(ctx); err != nil {
			return command, err
		}
		command.Partition = partitions[0]
		if command.Settings.EnablePartitioning {
			command.Partitions = partitions[:min(len(partitions), fsm.ShardsMax)]
		}
		return command, nil
	}
	of, name, _ := fsm.SplitSubscriptionPath(command.Name)
	topic, err := r.topicByName(ctx, of)
	command.Topic, command.Name = topic.ID, fsm.SubscriptionPath(topic.Name, name)
	return command, err
}

// topicByName finds a topic by name.
func (r NamespaceView) topicByName(ctx context.Context, name string) (fsm.Entity, error) {
	topic, err := r.entityOfKind(ctx, fsm.TopicEntity, name)
	if errors.Is(err, fsm.EntityNotFound) {
		err = fmt.Errorf("%w: topic %q does not exist", fsm.EntityNotFound, name)
	}
	return topic, err
}

// UpdateEntity changes the settings of an entity; existing locks stay as they are. Duplicate
// detection, sessions and partitioning are chosen at creation and cannot change. Errors wrap
// EntityNotFound, also when the name is that of another kind, InvalidArgument, ServerBusy or
// Timeout; after the last two it may be called again. When UpdateEntity returns, every member that answers refuses
// receivers of an entity whose status does not allow to receive.
func (r NamespaceView) UpdateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error) {
	entity, err := r.update(ctx, kind, name, settings)
	if err != nil {
		return fsm.Entity{}, fmt.Errorf("update %s %q: %w", kind, name, err)
	}
	return entity, nil
}

func (r NamespaceView) update(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error) {
	entity, err := r.entityOfKind(ctx, kind, name)
	if err != nil {
		return fsm.Entity{}, err
	}
	if err := checkUpdate(kind, entity.Settings, settings); err != nil {
		return fsm.Entity{}, err
	}
	namespace, err := r.namespaceLimits(ctx)
	if err != nil {
		return fsm.Entity{}, err
	}
	settings = withMessageSize(&namespace, settings)
	if err := checkLimits(&namespace, kind, settings, entity.Settings); err != nil {
		return fsm.Entity{}, err
	}
	if err := r.checkSettings(ctx, kind, entity.Name, settings, entity.Settings); err != nil {
		return fsm.Entity{}, err
	}
	if _, err := r.Command(ctx, fsm.CatalogPartition, fsm.UpdateEntity{Entity: entity.ID, Settings: settings}); err != nil {
		return fsm.Entity{}, explainLimits(&namespace, kind, settings, err)
	}
	entity, err = r.PutEntity(ctx, entity.ID)
	if err == nil && !settings.Status.AllowsReceive() {
		// Another member would attach a receiver, and detach it at its first request: clients report an empty receive then.
		r.awaitKnown(ctx)
	}
	return entity, err
}

// DeleteEntity frees the name, then drops the messages; a topic is deleted with its subscriptions.
// After the first step the cluster completes the rest, also when the caller fails. Errors wrap
// EntityNotFound, ServerBusy or Timeout.
func (r NamespaceView) DeleteEntity(ctx context.Context, kind fsm.EntityKind, name string) error {
	entity, err := r.entityOfKind(ctx, kind, name)
	if err != nil {
		return fmt.Errorf("delete %s %q: %w", kind, name, err)
	}
	if _, err := r.Command(ctx, fsm.CatalogPartition, fsm.DeleteEntity{Entity: entity.ID}); err != nil {
		return fmt.Errorf("delete %s %q: %w", kind, name, err)
	}
	if err := r.dropEntity(ctx, entity); err != nil {
		r.log.InfoContext(ctx, "failed to drop the messages of a deleted entity, will retry", "entity", name, "error", err)
	}
	return nil
}

// entityOfKind finds an entity by name; EntityNotFound when it is of another kind.
func (r NamespaceView) entityOfKind(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: name})
	if err == nil && entity.Kind != kind {
		err = fsm.EntityNotFound
	}
	return entity, err
}

// Entity returns an entity and the counts of its messages. Errors wrap EntityNotFound, ServerBusy or
// Timeout.
func (r NamespaceView) Entity(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error) {
	entity, err := r.entityOfKind(ctx, kind, name)
	if err != nil {
		return fsm.Entity{}, fsm.Counts{}, fmt.Errorf("%s %q: %w", kind, name, err)
	}
	counts, err := r.Counts(ctx, []fsm.Entity{entity})
	if err != nil {
		return fsm.Entity{}, fsm.Counts{}, fmt.Errorf("%s %q: %w", kind, name, err)
	}
	return entity, counts[0], nil
}

// Entities lists entities of a kind by name, regardless of case, from the first after the given
// name, at most max (1000). Subscriptions are listed under the
// path of their topic; under is "" for the other kinds. Errors wrap EntityNotFound (no such
// topic), InvalidArgument, ServerBusy or Timeout.
func (r NamespaceView) Entities(ctx context.Context, kind fsm.EntityKind, under, after string, max int) ([]fsm.Entity, error) {
	q := listQuery{Namespace: r.id, Kind: kind, After: after, Max: max}
	if (kind == fsm.SubscriptionEntity) != (under != "") {
		return nil, fmt.Errorf("list entities: %w: subscriptions, and only they, are listed under the name of a topic", fsm.InvalidArgument)
	}
	if under != "" {
		topic, err := r.topicByName(ctx, under)
		if err != nil {
			return nil, fmt.Errorf("list subscriptions: %w", err)
		}
		q.Topic = topic.ID
		if _, _, isPath := fsm.SplitSubscriptionPath(after); after != "" && !isPath {
			q.After = fsm.SubscriptionPath(topic.Name, after)
		}
	}
	entities, err := listEntities.At(ctx, r, q)
	if err != nil {
		return nil, fmt.Errorf("list entities: %w", err)
	}
	return entities, nil
}

// FindSubscriptions returns the paths of the subscriptions of all topics whose names begin and end with given texts,
// regardless of case, at most listMax. Errors wrap ServerBusy or Timeout.
func (r NamespaceView) FindSubscriptions(ctx context.Context, prefix, suffix string) ([]string, error) {
	paths, err := findSubscriptions.At(ctx, r, subscriptionsQuery{Namespace: r.id, Prefix: prefix, Suffix: suffix})
	if err != nil {
		return nil, fmt.Errorf("find subscriptions: %w", err)
	}
	return paths, nil
}

// leastLoaded returns the message partitions by their number of entities, the fewest first, equal ones
// by id. Queues that are created at the same time may be placed together.
func (r *Manager) leastLoaded(ctx context.Context) ([]fsm.PartitionID, error) {
	if !r.replicas.CatalogLoaded() {
		return nil, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	load, err := loadOfPartition.At(ctx, r, struct{}{})
	if err != nil {
		return nil, err
	}
	if len(load) == 0 {
		return nil, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	partitions := make([]fsm.PartitionID, len(load))
	for i := range load {
		partitions[i] = fsm.PartitionID(i + 1)
	}
	slices.SortStableFunc(partitions, func(a, b fsm.PartitionID) int { return cmp.Compare(load[a-1], load[b-1]) })
	return partitions, nil
}
