package catalog

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
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

// namespaceState is a namespace and the entities in it.
type namespaceState struct {
	*fsm.Namespace // never changed in place: images share it
	key            string
	byName         [3][]nameEntry // by kind: entities that are not being deleted, sorted by key
	entityCount    int            // entities, those being deleted and subscriptions included
}

// hostEntry maps a host name to the namespace that has it in its settings.
type hostEntry struct {
	host      string
	namespace *namespaceState
}

func (c *Machine) idIndex(id fsm.EntityID) (int, bool) { return findEntity(c.byID, id) }

// replace replaces the entity at i, which is not being deleted, by a changed one.
func (c *Machine) replace(i int, e *fsm.Entity) {
	c.replaceByID(i, e)
	s := c.namespace(e.Namespace)
	at, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind][at].entity = e
}

// replaceByID replaces the entity at i. The slice is copied, not written: an image may share it.
// Changes of entities are rare.
func (c *Machine) replaceByID(i int, e *fsm.Entity) {
	c.byID = slices.Clone(c.byID)
	c.byID[i] = e
}

// addLoad adds n to the load of every partition of an entity.
func (c *Machine) addLoad(e *fsm.Entity, n int) {
	if len(e.Shards) == 0 {
		c.load[e.Partition-1] += n
	}
	for _, shard := range e.Shards {
		c.load[shard.Partition-1] += n
	}
}

func (c *Machine) namespaceIndex(id fsm.NamespaceID) (int, bool) {
	return slices.BinarySearchFunc(c.namespaces, id, func(s *namespaceState, id fsm.NamespaceID) int { return cmp.Compare(s.ID, id) })
}

// namespace finds a namespace, nil if there is none.
func (c *Machine) namespace(id fsm.NamespaceID) *namespaceState {
	if i, found := c.namespaceIndex(id); found {
		return c.namespaces[i]
	}
	return nil
}

func (c *Machine) nameIndex(name string) (int, bool) {
	return slices.BinarySearchFunc(c.namespacesByName, name, func(s *namespaceState, name string) int { return fsm.CompareKey(s.key, name) })
}

func (c *Machine) hostIndex(name string) (int, bool) {
	return slices.BinarySearchFunc(c.hosts, name, func(h hostEntry, name string) int { return fsm.CompareKey(h.host, name) })
}

func (c *Machine) memberAt(id fsm.MemberID) (int, bool) {
	return slices.BinarySearchFunc(c.members, id, func(m *fsm.Member, id fsm.MemberID) int { return cmp.Compare(m.ID, id) })
}

// partition finds a partition, nil if there is none and for the catalog.
func (c *Machine) partition(id fsm.PartitionID) *fsm.Partition {
	if id == fsm.CatalogPartition || int64(id) > int64(len(c.partitions)) {
		return nil
	}
	return c.partitions[id-1]
}

// putPartition replaces a partition. The slice is copied, not written: an image may share it.
func (c *Machine) putPartition(p *fsm.Partition) {
	c.partitions = slices.Clone(c.partitions)
	c.partitions[p.ID-1] = p
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

func (s *namespaceState) nameIndex(kind fsm.EntityKind, name string) (int, bool) {
	return slices.BinarySearchFunc(s.byName[kind], name, func(n nameEntry, name string) int { return fsm.CompareKey(n.key, name) })
}

// lookup finds an entity by name or path, nil if there is none.
func (s *namespaceState) lookup(name string) *fsm.Entity {
	for kind := range s.byName {
		if i, found := s.nameIndex(fsm.EntityKind(kind), name); found {
			return s.byName[kind][i].entity
		}
	}
	return nil
}

// subscriptions returns the range of the subscriptions of a topic in their list.
func (s *namespaceState) subscriptions(topic string) (from, to int) {
	prefix := fsm.SubscriptionPath(topic, "")
	from, _ = s.nameIndex(fsm.SubscriptionEntity, prefix)
	to, _ = s.nameIndex(fsm.SubscriptionEntity, prefix[:len(prefix)-1]+string(rune('/'+1))) // after all with that prefix
	return from, to
}
