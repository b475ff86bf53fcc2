package fsm

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

const (
	// pathBytesMax is the longest path of a subscription.
	pathBytesMax = entityNameBytesMax + len("/Subscriptions/") + subscriptionNameCharactersMax
)

// catalogImage is an image of a Catalog.
type catalogImage struct {
	times         Times
	clusterID     string
	tokenKey      [16]byte
	level         uint32
	levelMax      uint32
	members       []*Member
	partitions    []*Partition
	lastNamespace NamespaceID
	namespaces    []*Namespace
	lastEntity    EntityID
	entities      []*Entity
	answers       frozenAnswers
}

// catalogWriter writes the state of a Catalog, and catalogReader reads it.
type (
	catalogWriter struct{ *streamWriter }
	catalogReader struct{ *streamReader }
)

// Image freezes the state: it copies only a pointer per namespace and the lists of the answer
// table.
func (c *Catalog) Image() Image { return c.freeze() }

func (c *Catalog) freeze() *catalogImage {
	img := &catalogImage{
		times: c.times, clusterID: c.clusterID, tokenKey: c.tokenKey, level: c.level, levelMax: c.levelMax,
		members: c.members, partitions: c.partitions, lastNamespace: c.lastNamespace, lastEntity: c.lastEntity, entities: c.byID, answers: c.table.freeze(),
		namespaces: make([]*Namespace, len(c.namespaces)),
	}
	for i, s := range c.namespaces {
		img.namespaces[i] = s.Namespace
	}
	c.generation++
	return img
}

// WriteTo writes the image.
func (img *catalogImage) WriteTo(w io.Writer) (int64, error) { return img.write(w, true) }

// Refs calls visit for nothing: a catalog has no bodies.
func (img *catalogImage) Refs(func(Owner, Ref)) {}

func (img *catalogImage) write(w io.Writer, refs bool) (int64, error) {
	iw := catalogWriter{newStreamWriter(w, machineCatalog, refs)}
	iw.times(img.times)
	iw.string(img.clusterID)
	for _, b := range img.tokenKey {
		iw.byte(b)
	}
	iw.uvarint(uint64(img.level))
	iw.uvarint(uint64(img.levelMax))
	iw.count(len(img.members))
	for _, m := range img.members {
		iw.fields(m.fields)
		iw.flushIfFull()
	}
	iw.count(len(img.partitions))
	for _, p := range img.partitions {
		iw.fields(func(x *fields.Codec) { partitionFields(x, p) })
		iw.flushIfFull()
	}
	iw.uvarint(uint64(img.lastNamespace))
	iw.count(len(img.namespaces))
	for _, n := range img.namespaces {
		iw.fields(func(x *fields.Codec) { namespaceFields(x, n) })
		iw.flushIfFull()
	}
	iw.uvarint(uint64(img.lastEntity))
	iw.count(len(img.entities))
	for _, e := range img.entities {
		iw.entity(e)
		iw.flushIfFull()
	}
	img.answers.write(iw.streamWriter)
	return iw.finish()
}

func (w *catalogWriter) entity(e *Entity) {
	w.uvarint(uint64(e.ID))
	w.uvarint(uint64(e.Namespace))
	w.byte(byte(e.Kind))
	w.uvarint(uint64(e.Topic))
	w.string(e.Name)
	w.uvarint(uint64(e.Partition))
	w.uvarint(e.Version)
	w.settings(&e.Settings)
	w.instant(e.Created)
	w.instant(e.Updated)
	w.bool(e.Dropping)
	var parts byte
	if e.Rule != nil {
		parts |= entityHasRule
	}
	if len(e.Shards) > 0 {
		parts |= entityHasShards
	}
	if len(e.Access) > 0 {
		parts |= entityHasAccess
	}
	w.uvarint(e.AccessVersion)
	w.byte(parts)
	if e.Rule != nil {
		w.rule(e.Rule)
	}
	if len(e.Shards) > 0 {
		partitions := e.partitions()
		w.fields(func(x *fields.Codec) { fieldPartitionIDs(x, &partitions) })
	}
	if len(e.Access) > 0 {
		w.fields(func(x *fields.Codec) { fieldTimedAccess(x, &e.Access) })
	}
}

// Bits that tell which optional parts of an entity follow.
const (
	entityHasRule   byte = 1 << 0
	entityHasShards byte = 1 << 1
	entityHasAccess byte = 1 << 2
)

// Restore replaces the state by that of an image. On an error the state machine is unchanged.
func (c *Catalog) Restore(r io.Reader) error {
	fresh := NewCatalog()
	ir := catalogReader{newStreamReader(r, machineCatalog)}
	fresh.times = ir.times()
	fresh.clusterID = ir.string(clusterIDBytesMax)
	for i := range fresh.tokenKey {
		fresh.tokenKey[i] = ir.byte()
	}
	fresh.level, fresh.levelMax = ir.uint32(), ir.uint32()
	ir.repeat(membersMax, func() { ir.member(fresh) })
	ir.repeat(partitionsMax, func() { ir.partition(fresh) })
	fresh.load = make([]int, len(fresh.partitions))
	fresh.lastNamespace = NamespaceID(ir.uint32())
	ir.repeat(namespacesMax, func() { ir.namespace(fresh) })
	ir.hosts(fresh)
	founded := fresh.clusterID != ""
	ir.require((fresh.level > 0) == founded && (fresh.levelMax == 0 || founded && fresh.levelMax >= fresh.level))
	ir.require((len(fresh.partitions) > 0) == founded && (fresh.namespace(DefaultNamespace) != nil) == founded && (len(fresh.namespaces) > 0) == founded)
	fresh.lastEntity = EntityID(ir.uvarint())
	ir.repeat(entitiesMax, func() { ir.entity(fresh) })
	for _, s := range fresh.namespaces {
		ir.names(s)
	}
	fresh.table.read(ir.streamReader)
	if err := ir.finish(); err != nil {
		return fmt.Errorf("restore catalog: %w", err)
	}
	*c = *fresh
	c.table.generation = &c.generation
	return nil
}

func (r *catalogReader) entity(c *Catalog) {
	e := &Entity{
		ID: EntityID(r.uvarint()), Namespace: NamespaceID(r.uint32()), Kind: EntityKind(r.byte()), Topic: EntityID(r.uvarint()), Name: r.string(pathBytesMax), Partition: PartitionID(r.uint32()),
		Version: r.uvarint(), Settings: r.settings(), Created: r.instant(), Updated: r.instant(), Dropping: r.bool(),
		AccessVersion: r.uvarint(),
	}
	parts := r.byte()
	r.require(parts&^(entityHasRule|entityHasShards|entityHasAccess) == 0)
	if parts&entityHasRule != 0 {
		x := r.rule()
		e.Rule = &x
	}
	if parts&entityHasShards != 0 {
		r.shards(c, e)
	}
	if parts&entityHasAccess != 0 {
		r.fields(func(x *fields.Codec) { fieldTimedAccess(x, &e.Access) })
		r.requireAccess(e.Access)
		r.require(len(e.Access) > 0)
	}
	r.require((e.Kind == SubscriptionEntity) == (e.AccessVersion == 0) && (e.Kind != SubscriptionEntity || len(e.Access) == 0))
	r.require(e.Kind == SubscriptionEntity || e.Settings.EnablePartitioning == (len(e.Shards) > 0))
	n := len(c.byID)
	r.require(validPath(e.Kind, e.Name) && validKind(e.Kind, e.Topic, e.Rule) && e.Settings.validFor(e.Kind))
	r.require(e.ID != 0 && e.ID-1+e.ids() <= c.lastEntity && (n == 0 || c.byID[n-1].ID+c.byID[n-1].ids() <= e.ID))
	r.require(e.Partition != CatalogPartition && int64(e.Partition) <= int64(len(c.partitions)))
	s := c.namespace(e.Namespace)
	r.require(s != nil)
	if r.failed() {
		return
	}
	c.byID = append(c.byID, e)
	c.addLoad(e, 1)
	s.entityCount++
	if e.Dropping {
		c.dropping = append(c.dropping, e)
	} else {
		s.byName[e.Kind] = append(s.byName[e.Kind], nameEntry{nameKey(e.Name), e})
	}
}

// shards reads the partitions of the shards of an entity: each shard has a partition of its own.
func (r *catalogReader) shards(c *Catalog, e *Entity) {
	var partitions []PartitionID
	r.repeat(ShardsMax, func() {
		id := PartitionID(r.uint32())
		r.require(id != CatalogPartition && int64(id) <= int64(len(c.partitions)) && !slices.Contains(partitions, id))
		partitions = append(partitions, id)
	})
	r.require(len(partitions) > 0 && partitions[0] == e.Partition)
	e.Shards = shardsFrom(e.ID, partitions)
}

// names sorts the names of a namespace and checks them: no two entities have the same name, and
// every subscription has its topic.
func (r *catalogReader) names(s *namespaceState) {
	for kind, list := range s.byName {
		slices.SortFunc(list, func(a, b nameEntry) int { return cmp.Compare(a.key, b.key) })
		for i, x := range list {
			r.require(i == 0 || list[i-1].key != x.key)
			if kind == int(TopicEntity) {
				_, taken := s.nameIndex(QueueEntity, x.key)
				r.require(!taken)
			}
			if kind == int(SubscriptionEntity) {
				of, _, _ := SplitSubscriptionPath(x.key)
				at, found := s.nameIndex(TopicEntity, of)
				r.require(found && isColocated(x.entity, s.byName[TopicEntity][at].entity))
			}
		}
	}
}

// isColocated reports whether a subscription belongs to a topic and is in the same partitions.
func isColocated(subscription, topic *Entity) bool {
	return subscription.Topic == topic.ID && subscription.Partition == topic.Partition &&
		slices.Equal(subscription.partitions(), topic.partitions())
}

// Digest returns a hash of the whole state: two replicas that applied the same entries have the
// same digest.
func (c *Catalog) Digest() uint64 { return c.freeze().Digest() }

// Digest is [Catalog.Digest] of the frozen state. It may run concurrently with Apply.
func (img *catalogImage) Digest() uint64 { return digest(img.write) }
