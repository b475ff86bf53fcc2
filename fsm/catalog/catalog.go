package catalog

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/image"
)

// Machine is the state machine of partition 0: the namespaces and entities with their settings and
// access rules, and the members on which partitions are placed. It is not safe for concurrent use;
// its images may be used concurrently with it.
//
// Entities, namespaces, partitions and members are never changed in place: a change replaces them,
// so images share them.
type Machine struct {
	times            fsm.Times // of the newest entry
	generation       image.Generation
	table            answers.Table
	clusterID        string
	tokenKey         [16]byte
	level            uint32            // the level of the cluster; 0 before it is bootstrapped
	levelMax         uint32            // the level above which it does not rise; 0 for none
	members          []*fsm.Member     // those with a record, sorted by ID
	partitions       []*fsm.Partition  // sorted by ID: partition i+1 at i; the slice is copied before a change
	lastNamespace    fsm.NamespaceID   // highest id assigned so far
	namespaces       []*namespaceState // sorted by ID
	namespacesByName []*namespaceState // sorted by the key of the name
	hosts            []hostEntry       // sorted by host
	lastEntity       fsm.EntityID      // highest id assigned so far
	byID             []*fsm.Entity     // all entities, those being deleted included, sorted by ID
	dropping         []*fsm.Entity     // sorted by ID
	load             []int             // entities of partition i+1, those being deleted included
}

// nameEntry is an entity with the key of its name.
type nameEntry struct {
	key    string
	entity *fsm.Entity
}

// New returns an empty state machine. It stores no bodies.
func New() *Machine {
	c := &Machine{}
	c.reset()
	return c
}

func (c *Machine) reset() {
	*c = Machine{}
	c.table = answers.New(&c.generation, func(*answers.Details) {})
}

// Apply performs one command and returns its result. A refused command changes nothing. A repeated
// command is answered from memory.
//
// Apply panics, with the index and the reason, if the bytes do not decode or the kind is not one of
// the catalog.
func (c *Machine) Apply(env fsm.Env, command []byte) fsm.Result {
	c.times = c.times.Advance(env)
	r := fields.Decoder(command)
	kind, h := fsm.ReadHeader(&r)
	if r.Err() == nil && !kind.IsFor(fsm.CatalogPartition) {
		r.Fail(fsm.ErrKind)
	}
	cmd, err := fsm.ReadPayload(r, kind)
	if err != nil {
		panic(fsm.Undecodable(env, kind, err))
	}
	if h.Incarnation == 0 {
		return c.perform(cmd)
	}
	l, old, code := c.table.Begin(h, c.times.Serving)
	switch {
	case code != fsm.OK:
		return fsm.Result{Code: code}
	case old != nil:
		return old.Result()
	}
	res := c.perform(cmd)
	if x, ok := answers.NewRecord(kind, h.Serial, fsm.Address{}, res); ok {
		c.table.Remember(l, x)
	}
	return res
}

func (c *Machine) perform(cmd fsm.Command) fsm.Result {
	if code := cmd.Check(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	switch cmd := cmd.(type) {
	case fsm.FoundCluster:
		return c.foundCluster(cmd)
	case fsm.PartitionFormed:
		return c.markFormed(cmd.Partition)
	case fsm.CreateEntity:
		return c.createEntity(cmd)
	case fsm.UpdateEntity:
		return c.updateEntity(cmd)
	case fsm.DeleteEntity:
		return c.deleteEntity(cmd.Entity)
	case fsm.ForgetEntity:
		return c.forgetEntity(cmd.Entity)
	case fsm.CreateNamespace, fsm.UpdateNamespace, fsm.DeleteNamespace, fsm.SetAccess:
		return c.applyNamespaceCommand(cmd)
	case fsm.SetMember, fsm.PlacePartition, fsm.PartitionPlaced, fsm.ReplaceReplica, fsm.AddPartitions:
		return c.applyPlacementCommand(cmd)
	case fsm.RaiseLevel:
		return fsm.Result{Code: c.raiseLevel(cmd.Level)}
	case fsm.HoldLevel:
		return fsm.Result{Code: c.holdLevel(cmd.Max)}
	case fsm.RenameCluster:
		return fsm.Result{Code: c.renameCluster(cmd.ClusterID)}
	case fsm.CloseReceiver:
		c.table.CloseReceiver(cmd)
	case fsm.Pulse:
		c.table.ForgetIdle(c.times.Serving, fsm.PulseMessagesMax)
	}
	return fsm.Result{}
}

func (c *Machine) foundCluster(cmd fsm.FoundCluster) fsm.Result {
	if c.clusterID != "" {
		return fsm.Result{Code: fsm.EntityExists}
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
	c.addNamespace(fsm.CreateNamespace{Name: fsm.DefaultNamespaceName})
	return fsm.Result{}
}

// renameCluster gives the cluster another id.
func (c *Machine) renameCluster(id string) fsm.Code {
	if !c.isOnOneMember() {
		return fsm.PreconditionFails
	}
	c.clusterID = id
	return fsm.OK
}

// isOnOneMember reports whether one member has all partitions, and no move is under way.
func (c *Machine) isOnOneMember() bool {
	for _, p := range c.partitions {
		if len(p.Replicas) != 1 || p.Target != nil || p.Replicas[0].Member != c.partitions[0].Replicas[0].Member {
			return false
		}
	}
	return true
}

func (c *Machine) markFormed(id fsm.PartitionID) fsm.Result {
	old := c.partition(id)
	switch {
	case old == nil:
		return fsm.Result{Code: fsm.InvalidArgument}
	case !old.Formed:
		p := *old
		p.Formed = true
		c.putPartition(&p)
	}
	return fsm.Result{}
}

func (c *Machine) createEntity(cmd fsm.CreateEntity) fsm.Result {
	switch {
	case c.clusterID == "":
		return fsm.Result{Code: fsm.PreconditionFails}
	case int64(max(cmd.Partition, slices.Max(append([]fsm.PartitionID{0}, cmd.Partitions...)))) > int64(len(c.partitions)):
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	if cmd.Kind == fsm.SubscriptionEntity {
		if code := c.inheritFromTopic(&cmd); code != fsm.OK {
			return fsm.Result{Code: code}
		}
	}
	s := c.namespace(cmd.Namespace)
	if s == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if s.lookup(cmd.Name) != nil {
		return fsm.Result{Code: fsm.EntityExists}
	}
	if len(c.byID) >= fsm.EntitiesMax {
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	if code := s.admits(&cmd); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	c.addEntity(s, &cmd)
	return fsm.Result{Entity: c.byID[len(c.byID)-1].ID, Version: 1}
}

// addEntity adds the entity that a command describes.
func (c *Machine) addEntity(s *namespaceState, cmd *fsm.CreateEntity) {
	e := &fsm.Entity{
		ID: c.lastEntity + 1, Shards: fsm.ShardsFrom(c.lastEntity+1, cmd.Partitions), Namespace: cmd.Namespace, Kind: cmd.Kind, Topic: cmd.Topic, Name: cmd.Name,
		Partition: cmd.Partition, Version: 1, Settings: cmd.Settings.WithDefaults(), Created: c.times.Wall, Updated: c.times.Wall, Rule: cmd.Rule,
	}
	if e.Kind != fsm.SubscriptionEntity {
		e.Access, e.AccessVersion = mergeAccess(nil, cmd.Access, c.times.Wall), 1
	}
	c.lastEntity += e.IDs()
	c.byID = append(c.byID, e)
	i, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind] = slices.Insert(s.byName[e.Kind], i, nameEntry{fsm.NameKey(e.Name), e})
	s.entityCount++
	c.addLoad(e, 1)
}

// inheritFromTopic completes the description of a subscription with what its topic determines: the
// namespace, the spelling of its name, and the partition.
func (c *Machine) inheritFromTopic(cmd *fsm.CreateEntity) fsm.Code {
	i, found := c.idIndex(cmd.Topic)
	if !found || c.byID[i].Dropping || c.byID[i].Kind != fsm.TopicEntity || cmd.Namespace != 0 && cmd.Namespace != c.byID[i].Namespace {
		return fsm.EntityNotFound
	}
	topic := c.byID[i]
	s := c.namespace(topic.Namespace)
	of, subscription, _ := fsm.SplitSubscriptionPath(cmd.Name)
	if fsm.NameKey(of) != fsm.NameKey(topic.Name) {
		return fsm.InvalidArgument
	}
	cmd.Namespace, cmd.Topic, cmd.Name = topic.Namespace, topic.ID, fsm.SubscriptionPath(topic.Name, subscription)
	cmd.Partition, cmd.Partitions = topic.Partition, topic.Partitions()
	if _, exists := s.nameIndex(fsm.SubscriptionEntity, cmd.Name); exists {
		return fsm.EntityExists
	}
	if from, to := s.subscriptions(topic.Name); to-from >= fsm.SubscriptionsMax {
		return fsm.QuotaExceeded
	}
	return fsm.OK
}

// subscriptions returns the range of the subscriptions of a topic in their list.
func (s *namespaceState) subscriptions(topic string) (from, to int) {
	prefix := fsm.SubscriptionPath(topic, "")
	from, _ = s.nameIndex(fsm.SubscriptionEntity, prefix)
	to, _ = s.nameIndex(fsm.SubscriptionEntity, prefix[:len(prefix)-1]+string(rune('/'+1))) // after all with that prefix
	return from, to
}

func (c *Machine) updateEntity(cmd fsm.UpdateEntity) fsm.Result {
	i, found := c.idIndex(cmd.Entity)
	if !found || c.byID[i].Dropping {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	old := c.byID[i]
	cmd.Settings = cmd.Settings.WithDefaults()
	if !cmd.Settings.ValidFor(old.Kind) || !old.Settings.CanChangeTo(&cmd.Settings) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	if old.Settings == cmd.Settings {
		return fsm.Result{Entity: old.ID, Version: old.Version}
	}
	if !c.namespace(old.Namespace).allows(old.Kind, &cmd.Settings, &old.Settings) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	e := *old
	e.Settings, e.Updated = cmd.Settings, c.times.Wall
	e.Version++
	c.replace(i, &e)
	return fsm.Result{Entity: e.ID, Version: e.Version}
}

// replace replaces the entity at i, which is not being deleted, by a changed one.
func (c *Machine) replace(i int, e *fsm.Entity) {
	c.replaceByID(i, e)
	s := c.namespace(e.Namespace)
	at, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind][at].entity = e
}

func (c *Machine) deleteEntity(id fsm.EntityID) fsm.Result {
	i, found := c.idIndex(id)
	if !found || c.byID[i].Dropping {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	e := *c.byID[i]
	e.Dropping, e.Updated = true, c.times.Wall
	c.replaceByID(i, &e)
	s := c.namespace(e.Namespace)
	at, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind] = slices.Delete(s.byName[e.Kind], at, at+1)
	at, _ = findEntity(c.dropping, e.ID)
	c.dropping = slices.Insert(c.dropping, at, &e)
	if e.Kind == fsm.TopicEntity {
		c.deleteSubscriptions(s, &e)
	}
	return fsm.Result{}
}

// deleteSubscriptions removes the subscriptions of a topic; the topic represents them until its
// partition has deleted it. A subscription that is being deleted already is removed by its own
// ForgetEntity.
func (c *Machine) deleteSubscriptions(s *namespaceState, topic *fsm.Entity) {
	from, to := s.subscriptions(topic.Name)
	if from == to {
		return
	}
	c.addLoad(topic, from-to) // they are in the partitions of the topic
	s.entityCount -= to - from
	s.byName[fsm.SubscriptionEntity] = slices.Delete(s.byName[fsm.SubscriptionEntity], from, to)
	kept := make([]*fsm.Entity, 0, len(c.byID)) // an image may share the old slice
	for _, e := range c.byID {
		if e.Topic != topic.ID || e.Dropping {
			kept = append(kept, e)
		}
	}
	c.byID = kept
}

func (c *Machine) forgetEntity(id fsm.EntityID) fsm.Result {
	i, found := c.idIndex(id)
	switch {
	case !found:
		return fsm.Result{Code: fsm.EntityNotFound}
	case !c.byID[i].Dropping:
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	c.addLoad(c.byID[i], -1)
	c.namespace(c.byID[i].Namespace).entityCount--
	c.byID = slices.Concat(c.byID[:i], c.byID[i+1:])
	at, _ := findEntity(c.dropping, id)
	c.dropping = slices.Delete(c.dropping, at, at+1)
	return fsm.Result{}
}

// replaceByID replaces the entity at i. The slice is copied, not written: an image may share it.
// Changes of entities are rare.
func (c *Machine) replaceByID(i int, e *fsm.Entity) {
	c.byID = slices.Clone(c.byID)
	c.byID[i] = e
}

// findEntity finds an entity by its id or by that of one of its shards.
func findEntity(list []*fsm.Entity, id fsm.EntityID) (int, bool) {
	i, found := slices.BinarySearchFunc(list, id, func(e *fsm.Entity, id fsm.EntityID) int { return cmp.Compare(e.ID, id) })
	if !found && i > 0 {
		if _, found = list[i-1].ShardOf(id); found {
			i--
		}
	}
	return i, found
}

func (c *Machine) idIndex(id fsm.EntityID) (int, bool) { return findEntity(c.byID, id) }

// Effects returns nothing: a catalog has no effects.
func (c *Machine) Effects() []fsm.Effect { return nil }

// Times returns the times of the newest entry.
func (c *Machine) Times() fsm.Times { return c.times }

// NextDeadline returns the time at which an incarnation is to be forgotten.
func (c *Machine) NextDeadline() fsm.Times { return fsm.Times{Serving: c.table.Due()} }

// Refs calls visit for nothing: a catalog has no bodies.
func (c *Machine) Refs(func(fsm.Owner, fsm.Ref) fsm.Ref) {}

// raiseLevel sets the level of the cluster. A level above FormatLevel is accepted too: all replicas
// must answer alike, and package cluster checks whether this binary is too old.
func (c *Machine) raiseLevel(level uint32) fsm.Code {
	if level < c.level || c.levelMax != 0 && level > c.levelMax || c.clusterID == "" {
		return fsm.PreconditionFails
	}
	c.level = level
	return fsm.OK
}

// holdLevel sets the level above which the cluster does not rise.
func (c *Machine) holdLevel(most uint32) fsm.Code {
	if most != 0 && most < c.level || c.clusterID == "" {
		return fsm.PreconditionFails
	}
	c.levelMax = most
	return fsm.OK
}

// FormatLevelMax returns the level above which the cluster does not rise, 0 for none.
func (c *Machine) FormatLevelMax() uint32 { return c.levelMax }

// FormatLevel returns the level of the cluster, which decides what may be written: 0 before the
// cluster is bootstrapped, then 1 or more.
func (c *Machine) FormatLevel() uint32 { return c.level }

// addLoad adds n to the load of every partition of an entity.
func (c *Machine) addLoad(e *fsm.Entity, n int) {
	if len(e.Shards) == 0 {
		c.load[e.Partition-1] += n
	}
	for _, shard := range e.Shards {
		c.load[shard.Partition-1] += n
	}
}
