package fsm

import (
	"cmp"
	"slices"
	"strings"
)

// Catalog is the machine of partition 0: which entities exist, with which settings,
// and on which members the partitions lie. It is not safe for concurrent use: whoever
// owns it calls one method at a time. Images made by it may be used beside it.
//
// Entities are never changed in place: a change puts another Entity in the place of
// the old one, so images share them.
type Catalog struct {
	clock      Instant // of the newest entry; never goes back
	era        era
	table      answers
	clusterID  string
	sealKey    [16]byte
	partitions []*Partition // sorted by ID: partition i+1 at i; never changed in place
	last       EntityID     // given to the newest entity
	byID       []*Entity    // every entity, dropping ones too, sorted by ID
	byName     []named      // entities that are not dropping, sorted by key
	dropping   []*Entity    // sorted by ID
	load       []int        // entities of partition i+1, dropping ones too
}

// named is an entity with the key of its name.
type named struct {
	key    string
	entity *Entity
}

// nameKey is what names are compared by: names differ by more than case.
func nameKey(name string) string { return strings.ToLower(name) }

// NewCatalog makes an empty machine. It holds no bodies.
func NewCatalog() *Catalog {
	c := &Catalog{}
	c.reset()
	return c
}

func (c *Catalog) reset() {
	*c = Catalog{}
	c.table = newAnswers(&c.era, func(*details) {})
}

// Apply performs one command at env and reports what came of it. A refused command
// changes nothing. A command seen before is answered from memory.
//
// It panics, with the index and the reason, on bytes that do not decode and on kinds
// that are not of this machine.
func (c *Catalog) Apply(env Env, command []byte) Result {
	c.clock = max(c.clock, env.Now)
	r := reader{b: command}
	kind, h := r.header()
	if r.err == nil && !kind.IsFor(CatalogPartition) {
		r.fail(errKind)
	}
	cmd := r.payload(kind)
	decoded(env, kind, &r)
	if h.Origin == 0 {
		return c.perform(cmd)
	}
	l, old, code := c.table.begin(h, c.clock)
	switch {
	case code != OK:
		return Result{Code: code}
	case old != nil:
		return old.result()
	}
	res := c.perform(cmd)
	if x, ok := newAnswer(kind, h.Serial, Address{}, res); ok {
		c.table.remember(l, x)
	}
	return res
}

func (c *Catalog) perform(cmd Command) Result {
	if code := Check(cmd); code != OK {
		return Result{Code: code}
	}
	switch cmd := cmd.(type) {
	case FoundCluster:
		return c.found(cmd)
	case PartitionFormed:
		return c.formed(cmd.Partition)
	case CreateEntity:
		return c.create(cmd)
	case UpdateEntity:
		return c.update(cmd)
	case DeleteEntity:
		return c.delete(cmd.Entity)
	case ForgetEntity:
		return c.forget(cmd.Entity)
	case CloseLane:
		c.table.closeLane(cmd)
	case Pulse:
		c.table.forgetIdle(c.clock, pulseMessagesMax)
	}
	return Result{}
}

func (c *Catalog) found(cmd FoundCluster) Result {
	if c.clusterID != "" {
		return Result{Code: EntityExists}
	}
	c.clusterID, c.sealKey = cmd.ClusterID, cmd.SealKey
	for i := range cmd.Partitions {
		p := cmd.Partitions[i]
		c.partitions = append(c.partitions, &p)
	}
	c.load = make([]int, len(c.partitions))
	return Result{}
}

func (c *Catalog) formed(id PartitionID) Result {
	if id == CatalogPartition || int64(id) > int64(len(c.partitions)) {
		return Result{Code: InvalidArgument}
	}
	if old := c.partitions[id-1]; !old.Formed {
		p := *old
		p.Formed = true
		c.partitions = slices.Clone(c.partitions)
		c.partitions[id-1] = &p
	}
	return Result{}
}

func (c *Catalog) create(cmd CreateEntity) Result {
	switch {
	case c.clusterID == "":
		return Result{Code: PreconditionFails}
	case int64(cmd.Partition) > int64(len(c.partitions)):
		return Result{Code: InvalidArgument}
	}
	key := nameKey(cmd.Name)
	i, found := c.name(key)
	switch {
	case found:
		return Result{Code: EntityExists}
	case len(c.byID) >= entitiesMax:
		return Result{Code: QuotaExceeded}
	}
	c.last++
	e := &Entity{
		ID: c.last, Name: cmd.Name, Partition: cmd.Partition, Version: 1, Settings: cmd.Settings.WithDefaults(),
		Created: c.clock, Updated: c.clock,
	}
	c.byID = append(c.byID, e)
	c.byName = slices.Insert(c.byName, i, named{key, e})
	c.load[e.Partition-1]++
	return Result{Entity: e.ID, Version: e.Version}
}

func (c *Catalog) update(cmd UpdateEntity) Result {
	i, found := c.id(cmd.Entity)
	if !found || c.byID[i].Dropping {
		return Result{Code: EntityNotFound}
	}
	old := c.byID[i]
	cmd.Settings = cmd.Settings.WithDefaults()
	if old.Settings.RequiresDuplicateDetection != cmd.Settings.RequiresDuplicateDetection {
		return Result{Code: InvalidArgument}
	}
	if old.Settings == cmd.Settings {
		return Result{Entity: old.ID, Version: old.Version}
	}
	e := *old
	e.Settings, e.Updated = cmd.Settings, c.clock
	e.Version++
	c.replace(i, &e)
	at, _ := c.name(nameKey(e.Name))
	c.byName[at].entity = &e
	return Result{Entity: e.ID, Version: e.Version}
}

func (c *Catalog) delete(id EntityID) Result {
	i, found := c.id(id)
	if !found || c.byID[i].Dropping {
		return Result{Code: EntityNotFound}
	}
	e := *c.byID[i]
	e.Dropping, e.Updated = true, c.clock
	c.replace(i, &e)
	at, _ := c.name(nameKey(e.Name))
	c.byName = slices.Delete(c.byName, at, at+1)
	at, _ = findEntity(c.dropping, id)
	c.dropping = slices.Insert(c.dropping, at, &e)
	return Result{}
}

func (c *Catalog) forget(id EntityID) Result {
	i, found := c.id(id)
	switch {
	case !found:
		return Result{Code: EntityNotFound}
	case !c.byID[i].Dropping:
		return Result{Code: PreconditionFails}
	}
	c.load[c.byID[i].Partition-1]--
	c.byID = append(slices.Clone(c.byID[:i]), c.byID[i+1:]...)
	at, _ := findEntity(c.dropping, id)
	c.dropping = slices.Delete(c.dropping, at, at+1)
	return Result{}
}

// replace puts e in the place of the entity at i. The slice is copied, not written:
// an image may share it. Changes of entities are rare.
func (c *Catalog) replace(i int, e *Entity) {
	c.byID = slices.Clone(c.byID)
	c.byID[i] = e
}

func findEntity(list []*Entity, id EntityID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(e *Entity, id EntityID) int { return cmp.Compare(e.ID, id) })
}

func (c *Catalog) id(id EntityID) (int, bool) { return findEntity(c.byID, id) }

func (c *Catalog) name(key string) (int, bool) {
	return slices.BinarySearchFunc(c.byName, key, func(n named, key string) int { return cmp.Compare(n.key, key) })
}

// Effects returns nothing: a catalog wakes nobody.
func (c *Catalog) Effects() []Effect { return nil }

// NextDeadline says when an origin is to be forgotten.
func (c *Catalog) NextDeadline() (at Instant, ok bool) { return c.table.due, c.table.due != 0 }

// Refs visits nothing: a catalog has no bodies.
func (c *Catalog) Refs(func(Owner, Ref) Ref) {}

// Lookup finds an entity by name, without case; one that is dropping is not found.
func (c *Catalog) Lookup(name string) (Entity, bool) {
	if i, found := c.name(nameKey(name)); found {
		return *c.byName[i].entity, true
	}
	return Entity{}, false
}

// ByID finds an entity, also one that is dropping.
func (c *Catalog) ByID(id EntityID) (Entity, bool) {
	if i, found := c.id(id); found {
		return *c.byID[i], true
	}
	return Entity{}, false
}

// List returns up to most entities in the order of their names without case, beginning
// behind the name after ("" begins at the start). Dropping ones are left out.
func (c *Catalog) List(after string, most int) []Entity {
	i := 0
	if after != "" {
		var found bool
		if i, found = c.name(nameKey(after)); found {
			i++
		}
	}
	n := min(max(most, 0), len(c.byName)-i)
	list := make([]Entity, n)
	for j := range list {
		list[j] = *c.byName[i+j].entity
	}
	return list
}

// Dropping returns the entities that were deleted and whose partition has not dropped
// them yet, by ID.
func (c *Catalog) Dropping() []Entity {
	list := make([]Entity, len(c.dropping))
	for i, e := range c.dropping {
		list[i] = *e
	}
	return list
}

// Entities is the number of entities, without dropping ones.
func (c *Catalog) Entities() int { return len(c.byName) }

// Partitions returns the partitions by ID, without the catalog. The caller must not
// write to the replicas.
func (c *Catalog) Partitions() []Partition {
	list := make([]Partition, len(c.partitions))
	for i, p := range c.partitions {
		list[i] = *p
	}
	return list
}

// PartitionLoad is the number of entities of each partition, dropping ones included:
// partition i+1 at i.
func (c *Catalog) PartitionLoad() []int { return slices.Clone(c.load) }

// ClusterID is the name of the cluster, "" before it was founded.
func (c *Catalog) ClusterID() string { return c.clusterID }

// SealKey is the key that seals lock tokens. It is a secret.
func (c *Catalog) SealKey() [16]byte { return c.sealKey }
