package fsm

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

// Catalog is the state machine of partition 0: the namespaces and entities with their settings and
// access rules, and the members on which partitions are placed. It is not safe for concurrent use;
// its images may be used concurrently with it.
//
// Entities, namespaces, partitions and members are never changed in place: a change replaces them,
// so images share them.
type Catalog struct {
	times            Times // of the newest entry
	generation       generation
	table            answerTable
	clusterID        string
	tokenKey         [16]byte
	level            uint32            // the level of the cluster; 0 before it is bootstrapped
	levelMax         uint32            // the level above which it does not rise; 0 for none
	members          []*Member         // those with a record, sorted by ID
	partitions       []*Partition      // sorted by ID: partition i+1 at i; the slice is copied before a change
	lastNamespace    NamespaceID       // highest id assigned so far
	namespaces       []*namespaceState // sorted by ID
	namespacesByName []*namespaceState // sorted by the key of the name
	hosts            []hostEntry       // sorted by host
	lastEntity       EntityID          // highest id assigned so far
	byID             []*Entity         // all entities, those being deleted included, sorted by ID
	dropping         []*Entity         // sorted by ID
	load             []int             // entities of partition i+1, those being deleted included
}

// nameEntry is an entity with the key of its name.
type nameEntry struct {
	key    string
	entity *Entity
}

// NewCatalog returns an empty state machine. It stores no bodies.
func NewCatalog() *Catalog {
	c := &Catalog{}
	c.reset()
	return c
}

func (c *Catalog) reset() {
	*c = Catalog{}
	c.table = newAnswerTable(&c.generation, func(*answerDetails) {})
}

// Apply performs one command and returns its result. A refused command changes nothing. A repeated
// command is answered from memory.
//
// Apply panics, with the index and the reason, if the bytes do not decode or the kind is not one of
// the catalog.
func (c *Catalog) Apply(env Env, command []byte) Result {
	c.times = c.times.advance(env)
	r := fields.Decoder(command)
	kind, h := readHeader(&r)
	if r.Err() == nil && !kind.IsFor(CatalogPartition) {
		r.Fail(errKind)
	}
	cmd, err := readPayload(r, kind)
	if err != nil {
		panic(undecodable(env, kind, err))
	}
	if h.Incarnation == 0 {
		return c.perform(cmd)
	}
	l, old, code := c.table.begin(h, c.times.Serving)
	switch {
	case code != OK:
		return Result{Code: code}
	case old != nil:
		return old.result()
	}
	res := c.perform(cmd)
	if x, ok := newAnswerRecord(kind, h.Serial, Address{}, res); ok {
		c.table.remember(l, x)
	}
	return res
}

func (c *Catalog) perform(cmd Command) Result {
	if code := cmd.check(); code != OK {
		return Result{Code: code}
	}
	switch cmd := cmd.(type) {
	case FoundCluster:
		return c.foundCluster(cmd)
	case PartitionFormed:
		return c.markFormed(cmd.Partition)
	case CreateEntity:
		return c.createEntity(cmd)
	case UpdateEntity:
		return c.updateEntity(cmd)
	case DeleteEntity:
		return c.deleteEntity(cmd.Entity)
	case ForgetEntity:
		return c.forgetEntity(cmd.Entity)
	case CreateNamespace, UpdateNamespace, DeleteNamespace, SetAccess:
		return c.applyNamespaceCommand(cmd)
	case SetMember, PlacePartition, PartitionPlaced, ReplaceReplica, AddPartitions:
		return c.applyPlacementCommand(cmd)
	case RaiseLevel:
		return Result{Code: c.raiseLevel(cmd.Level)}
	case HoldLevel:
		return Result{Code: c.holdLevel(cmd.Max)}
	case RenameCluster:
		return Result{Code: c.renameCluster(cmd.ClusterID)}
	case CloseReceiver:
		c.table.closeReceiver(cmd)
	case Pulse:
		c.table.forgetIdle(c.times.Serving, pulseMessagesMax)
	}
	return Result{}
}

func (c *Catalog) foundCluster(cmd FoundCluster) Result {
	if c.clusterID != "" {
		return Result{Code: EntityExists}
	}
	c.clusterID, c.tokenKey, c.level = cmd.ClusterID, cmd.TokenKey, 1
	for i := range cmd.Partitions {
		p := cmd.Partitions[i]
		for _, replica := range p.Replicas {
			p.Last = max(p.Last, replica.Number)
		}
		c.partitions = append(c.partitions, &p)
	}
	c.load = make([]int, len(c.partitions))
	c.addNamespace(CreateNamespace{Name: DefaultNamespaceName})
	return Result{}
}

// renameCluster gives the cluster another id.
func (c *Catalog) renameCluster(id string) Code {
	if !c.isOnOneMember() {
		return PreconditionFails
	}
	c.clusterID = id
	return OK
}

// isOnOneMember reports whether one member has all partitions, and no move is under way.
func (c *Catalog) isOnOneMember() bool {
	for _, p := range c.partitions {
		if len(p.Replicas) != 1 || p.Target != nil || p.Replicas[0].Member != c.partitions[0].Replicas[0].Member {
			return false
		}
	}
	return true
}

func (c *Catalog) markFormed(id PartitionID) Result {
	old := c.partition(id)
	switch {
	case old == nil:
		return Result{Code: InvalidArgument}
	case !old.Formed:
		p := *old
		p.Formed = true
		c.putPartition(&p)
	}
	return Result{}
}

func (c *Catalog) createEntity(cmd CreateEntity) Result {
	switch {
	case c.clusterID == "":
		return Result{Code: PreconditionFails}
	case int64(max(cmd.Partition, slices.Max(append([]PartitionID{0}, cmd.Partitions...)))) > int64(len(c.partitions)):
		return Result{Code: InvalidArgument}
	}
	if cmd.Kind == SubscriptionEntity {
		if code := c.inheritFromTopic(&cmd); code != OK {
			return Result{Code: code}
		}
	}
	s := c.namespace(cmd.Namespace)
	if s == nil {
		return Result{Code: EntityNotFound}
	}
	if s.lookup(cmd.Name) != nil {
		return Result{Code: EntityExists}
	}
	if len(c.byID) >= entitiesMax {
		return Result{Code: QuotaExceeded}
	}
	if code := s.admits(&cmd); code != OK {
		return Result{Code: code}
	}
	c.addEntity(s, &cmd)
	return Result{Entity: c.byID[len(c.byID)-1].ID, Version: 1}
}

// addEntity adds the entity that a command describes.
func (c *Catalog) addEntity(s *namespaceState, cmd *CreateEntity) {
	e := &Entity{
		ID: c.lastEntity + 1, Shards: shardsFrom(c.lastEntity+1, cmd.Partitions), Namespace: cmd.Namespace, Kind: cmd.Kind, Topic: cmd.Topic, Name: cmd.Name,
		Partition: cmd.Partition, Version: 1, Settings: cmd.Settings.WithDefaults(), Created: c.times.Wall, Updated: c.times.Wall, Rule: cmd.Rule,
	}
	if e.Kind != SubscriptionEntity {
		e.Access, e.AccessVersion = mergeAccess(nil, cmd.Access, c.times.Wall), 1
	}
	c.lastEntity += e.ids()
	c.byID = append(c.byID, e)
	i, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind] = slices.Insert(s.byName[e.Kind], i, nameEntry{nameKey(e.Name), e})
	s.entityCount++
	c.addLoad(e, 1)
}

// inheritFromTopic completes the description of a subscription with what its topic determines: the
// namespace, the spelling of its name, and the partition.
func (c *Catalog) inheritFromTopic(cmd *CreateEntity) Code {
	i, found := c.idIndex(cmd.Topic)
	if !found || c.byID[i].Dropping || c.byID[i].Kind != TopicEntity || cmd.Namespace != 0 && cmd.Namespace != c.byID[i].Namespace {
		return EntityNotFound
	}
	topic := c.byID[i]
	s := c.namespace(topic.Namespace)
	of, subscription, _ := SplitSubscriptionPath(cmd.Name)
	if nameKey(of) != nameKey(topic.Name) {
		return InvalidArgument
	}
	cmd.Namespace, cmd.Topic, cmd.Name = topic.Namespace, topic.ID, SubscriptionPath(topic.Name, subscription)
	cmd.Partition, cmd.Partitions = topic.Partition, topic.partitions()
	if _, exists := s.nameIndex(SubscriptionEntity, cmd.Name); exists {
		return EntityExists
	}
	if from, to := s.subscriptions(topic.Name); to-from >= subscriptionsMax {
		return QuotaExceeded
	}
	return OK
}

// subscriptions returns the range of the subscriptions of a topic in their list.
func (s *namespaceState) subscriptions(topic string) (from, to int) {
	prefix := SubscriptionPath(topic, "")
	from, _ = s.nameIndex(SubscriptionEntity, prefix)
	to, _ = s.nameIndex(SubscriptionEntity, prefix[:len(prefix)-1]+string(rune('/'+1))) // after all with that prefix
	return from, to
}

func (c *Catalog) updateEntity(cmd UpdateEntity) Result {
	i, found := c.idIndex(cmd.Entity)
	if !found || c.byID[i].Dropping {
		return Result{Code: EntityNotFound}
	}
	old := c.byID[i]
	cmd.Settings = cmd.Settings.WithDefaults()
	if !cmd.Settings.validFor(old.Kind) || !old.Settings.canChangeTo(&cmd.Settings) {
		return Result{Code: InvalidArgument}
	}
	if old.Settings == cmd.Settings {
		return Result{Entity: old.ID, Version: old.Version}
	}
	if !c.namespace(old.Namespace).allows(old.Kind, &cmd.Settings, &old.Settings) {
		return Result{Code: InvalidArgument}
	}
	e := *old
	e.Settings, e.Updated = cmd.Settings, c.times.Wall
	e.Version++
	c.replace(i, &e)
	return Result{Entity: e.ID, Version: e.Version}
}

// replace replaces the entity at i, which is not being deleted, by a changed one.
func (c *Catalog) replace(i int, e *Entity) {
	c.replaceByID(i, e)
	s := c.namespace(e.Namespace)
	at, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind][at].entity = e
}

func (c *Catalog) deleteEntity(id EntityID) Result {
	i, found := c.idIndex(id)
	if !found || c.byID[i].Dropping {
		return Result{Code: EntityNotFound}
	}
	e := *c.byID[i]
	e.Dropping, e.Updated = true, c.times.Wall
	c.replaceByID(i, &e)
	s := c.namespace(e.Namespace)
	at, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind] = slices.Delete(s.byName[e.Kind], at, at+1)
	at, _ = findEntity(c.dropping, e.ID)
	c.dropping = slices.Insert(c.dropping, at, &e)
	if e.Kind == TopicEntity {
		c.deleteSubscriptions(s, &e)
	}
	return Result{}
}

// deleteSubscriptions removes the subscriptions of a topic; the topic represents them until its
// partition has deleted it. A subscription that is being deleted already is removed by its own
// ForgetEntity.
func (c *Catalog) deleteSubscriptions(s *namespaceState, topic *Entity) {
	from, to := s.subscriptions(topic.Name)
	if from == to {
		return
	}
	c.addLoad(topic, from-to) // they are in the partitions of the topic
	s.entityCount -= to - from
	s.byName[SubscriptionEntity] = slices.Delete(s.byName[SubscriptionEntity], from, to)
	kept := make([]*Entity, 0, len(c.byID)) // an image may share the old slice
	for _, e := range c.byID {
		if e.Topic != topic.ID || e.Dropping {
			kept = append(kept, e)
		}
	}
	c.byID = kept
}

func (c *Catalog) forgetEntity(id EntityID) Result {
	i, found := c.idIndex(id)
	switch {
	case !found:
		return Result{Code: EntityNotFound}
	case !c.byID[i].Dropping:
		return Result{Code: PreconditionFails}
	}
	c.addLoad(c.byID[i], -1)
	c.namespace(c.byID[i].Namespace).entityCount--
	c.byID = slices.Concat(c.byID[:i], c.byID[i+1:])
	at, _ := findEntity(c.dropping, id)
	c.dropping = slices.Delete(c.dropping, at, at+1)
	return Result{}
}

// replaceByID replaces the entity at i. The slice is copied, not written: an image may share it.
// Changes of entities are rare.
func (c *Catalog) replaceByID(i int, e *Entity) {
	c.byID = slices.Clone(c.byID)
	c.byID[i] = e
}

// findEntity finds an entity by its id or by that of one of its shards.
func findEntity(list []*Entity, id EntityID) (int, bool) {
	i, found := slices.BinarySearchFunc(list, id, func(e *Entity, id EntityID) int { return cmp.Compare(e.ID, id) })
	if !found && i > 0 {
		if _, found = list[i-1].ShardOf(id); found {
			i--
		}
	}
	return i, found
}

func (c *Catalog) idIndex(id EntityID) (int, bool) { return findEntity(c.byID, id) }

// Effects returns nothing: a catalog has no effects.
func (c *Catalog) Effects() []Effect { return nil }

// Times returns the times of the newest entry.
func (c *Catalog) Times() Times { return c.times }

// NextDeadline returns the time at which an incarnation is to be forgotten.
func (c *Catalog) NextDeadline() Times { return Times{Serving: c.table.due} }

// Refs calls visit for nothing: a catalog has no bodies.
func (c *Catalog) Refs(func(Owner, Ref) Ref) {}

// raiseLevel sets the level of the cluster. A level above FormatLevel is accepted too: all replicas
// must answer alike, and package cluster checks whether this binary is too old.
func (c *Catalog) raiseLevel(level uint32) Code {
	if level < c.level || c.levelMax != 0 && level > c.levelMax || c.clusterID == "" {
		return PreconditionFails
	}
	c.level = level
	return OK
}

// holdLevel sets the level above which the cluster does not rise.
func (c *Catalog) holdLevel(most uint32) Code {
	if most != 0 && most < c.level || c.clusterID == "" {
		return PreconditionFails
	}
	c.levelMax = most
	return OK
}

// FormatLevelMax returns the level above which the cluster does not rise, 0 for none.
func (c *Catalog) FormatLevelMax() uint32 { return c.levelMax }

// FormatLevel returns the level of the cluster, which decides what may be written: 0 before the
// cluster is bootstrapped, then 1 or more.
func (c *Catalog) FormatLevel() uint32 { return c.level }

// addLoad adds n to the load of every partition of an entity.
func (c *Catalog) addLoad(e *Entity, n int) {
	if len(e.Shards) == 0 {
		c.load[e.Partition-1] += n
	}
	for _, shard := range e.Shards {
		c.load[shard.Partition-1] += n
	}
}
