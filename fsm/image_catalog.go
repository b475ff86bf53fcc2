package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// catalogImage is an image of a Catalog.
type catalogImage struct {
	clock      Instant
	clusterID  string
	sealKey    [16]byte
	level      uint32
	members    []*Member
	partitions []*Partition
	newest     NamespaceID
	spaces     []*Namespace
	last       EntityID
	entities   []*Entity
	origins    []frozenOrigin
}

// Image freezes the state: it copies nothing but a pointer a namespace and the answers' table of contents.
func (c *Catalog) Image() Image { return c.freeze() }

func (c *Catalog) freeze() *catalogImage {
	img := &catalogImage{
		clock: c.clock, clusterID: c.clusterID, sealKey: c.sealKey, level: c.level,
		members: c.members, partitions: c.partitions, newest: c.newest, last: c.last, entities: c.byID, origins: c.table.freeze(),
		spaces: make([]*Namespace, len(c.spaces)),
	}
	for i, s := range c.spaces {
		img.spaces[i] = s.Namespace
	}
	c.era++
	return img
}

// WriteTo writes the image.
func (img *catalogImage) WriteTo(w io.Writer) (int64, error) { return img.write(w, true) }

// Refs visits nothing: a catalog has no bodies.
func (img *catalogImage) Refs(func(Owner, Ref)) {}

func (img *catalogImage) write(w io.Writer, refs bool) (int64, error) {
	iw := newImageWriter(w, machineCatalog, imageVersion(machineCatalog, Level), refs)
	iw.instant(img.clock)
	iw.string(img.clusterID)
	for _, b := range img.sealKey {
		iw.byte(b)
	}
	iw.uvarint(uint64(img.level))
	iw.count(len(img.members))
	for _, m := range img.members {
		iw.buf = appendMember(iw.buf, m)
		iw.spill()
	}
	iw.count(len(img.partitions))
	for _, p := range img.partitions {
		iw.partition(p)
		iw.spill()
	}
	iw.uvarint(uint64(img.newest))
	iw.count(len(img.spaces))
	for _, n := range img.spaces {
		iw.namespace(n)
		iw.spill()
	}
	iw.uvarint(uint64(img.last))
	iw.count(len(img.entities))
	for _, e := range img.entities {
		iw.entity(e)
		iw.spill()
	}
	iw.answers(img.origins)
	return iw.finish()
}

func (w *imageWriter) entity(e *Entity) {
	w.uvarint(uint64(e.ID))
	w.uvarint(uint64(e.Namespace))
	w.byte(byte(e.Kind))
	w.uvarint(uint64(e.Topic))
	w.string(e.Name)
	w.uvarint(uint64(e.Partition))
	w.uvarint(e.Version)
	w.settings(e.Settings)
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
		w.buf = appendPartitionIDs(w.buf, e.partitions())
	}
	if len(e.Access) > 0 {
		w.access(e.Access)
	}
}

// The parts that only some entities have.
const (
	entityHasRule   byte = 1 << 0
	entityHasShards byte = 1 << 1
	entityHasAccess byte = 1 << 2
)

// Restore replaces the state with an image read back. On an error the machine is as it
// was.
func (c *Catalog) Restore(r io.Reader) error {
	fresh := NewCatalog()
	ir := newImageReader(r, machineCatalog)
	fresh.clock = ir.instant()
	fresh.clusterID = ir.string(clusterIDBytesMax)
	for i := range fresh.sealKey {
		fresh.sealKey[i] = ir.byte()
	}
	fresh.level = ir.uint32()
	ir.more(membersMax, func() { ir.member(fresh) })
	ir.more(partitionsMax, func() { ir.partition(fresh) })
	fresh.load = make([]int, len(fresh.partitions))
	fresh.newest = NamespaceID(ir.uint32())
	ir.more(namespacesMax, func() { ir.namespace(fresh) })
	ir.hosts(fresh)
	founded := fresh.clusterID != ""
	ir.want((fresh.level > 0) == founded)
	ir.want((len(fresh.partitions) > 0) == founded && (fresh.space(DefaultNamespace) != nil) == founded && (len(fresh.spaces) > 0) == founded)
	fresh.last = EntityID(ir.uvarint())
	ir.more(entitiesMax, func() { ir.entity(fresh) })
	for _, s := range fresh.spaces {
		ir.names(s)
	}
	ir.answers(&fresh.table)
	if err := ir.finish(); err != nil {
		return fmt.Errorf("restore catalog: %w", err)
	}
	*c = *fresh
	c.table.era = &c.era
	return nil
}

func (r *imageReader) entity(c *Catalog) {
	e := &Entity{
		ID: EntityID(r.uvarint()), Namespace: NamespaceID(r.uint32()), Kind: EntityKind(r.byte()), Topic: EntityID(r.uvarint()), Name: r.string(pathBytesMax), Partition: PartitionID(r.uint32()),
		Version: r.uvarint(), Settings: r.settings(), Created: r.instant(), Updated: r.instant(), Dropping: r.bool(),
		AccessVersion: r.uvarint(),
	}
	parts := r.byte()
	r.want(parts&^(entityHasRule|entityHasShards|entityHasAccess) == 0)
	if parts&entityHasRule != 0 {
		x := r.rule()
		e.Rule = &x
	}
	if parts&entityHasShards != 0 {
		r.shards(c, e)
	}
	if parts&entityHasAccess != 0 {
		e.Access = r.access()
		r.want(len(e.Access) > 0)
	}
	r.want((e.Kind == SubscriptionEntity) == (e.AccessVersion == 0) && (e.Kind != SubscriptionEntity || len(e.Access) == 0))
	r.want(e.Kind == SubscriptionEntity || e.Settings.EnablePartitioning == (len(e.Shards) > 0))
	n := len(c.byID)
	r.want(validPath(e.Kind, e.Name) && validKind(e.Kind, e.Topic, e.Rule) && e.Settings.validFor(e.Kind))
	r.want(e.ID != 0 && e.ID-1+e.ids() <= c.last && (n == 0 || c.byID[n-1].ID+c.byID[n-1].ids() <= e.ID))
	r.want(e.Partition != CatalogPartition && int64(e.Partition) <= int64(len(c.partitions)))
	s := c.space(e.Namespace)
	r.want(s != nil)
	if r.err != nil {
		return
	}
	c.byID = append(c.byID, e)
	c.weigh(e, 1)
	s.held++
	if e.Dropping {
		c.dropping = append(c.dropping, e)
	} else {
		s.byName[e.Kind] = append(s.byName[e.Kind], named{nameKey(e.Name), e})
	}
}

// shards reads where those of an entity lie: a partition of its own for each.
func (r *imageReader) shards(c *Catalog, e *Entity) {
	var partitions []PartitionID
	r.more(ShardsMax, func() {
		id := PartitionID(r.uint32())
		r.want(id != CatalogPartition && int64(id) <= int64(len(c.partitions)) && !slices.Contains(partitions, id))
		partitions = append(partitions, id)
	})
	r.want(len(partitions) > 0 && partitions[0] == e.Partition && e.Settings.WithDefaults().AutoDeleteOnIdle >= Forever)
	e.Shards = shardsFrom(e.ID, partitions)
}

// names puts the names of a namespace in order. Two entities with one name cannot be, nor a
// subscription without its topic.
func (r *imageReader) names(s *space) {
	for kind, list := range s.byName {
		slices.SortFunc(list, func(a, b named) int { return cmp.Compare(a.key, b.key) })
		for i, x := range list {
			r.want(i == 0 || list[i-1].key != x.key)
			if kind == int(TopicEntity) {
				_, taken := s.name(QueueEntity, x.key)
				r.want(!taken)
			}
			if kind == int(SubscriptionEntity) {
				of, _, _ := SplitSubscriptionPath(x.key)
				at, found := s.name(TopicEntity, of)
				r.want(found && beside(x.entity, s.byName[TopicEntity][at].entity))
			}
		}
	}
}

// beside says whether a subscription is of a topic and lies where it lies.
func beside(subscription, topic *Entity) bool {
	return subscription.Topic == topic.ID && subscription.Partition == topic.Partition &&
		slices.Equal(subscription.partitions(), topic.partitions())
}

// Digest is a hash of the whole state: two replicas that applied the same entries have
// the same digest.
func (c *Catalog) Digest() uint64 { return digest(c.freeze()) }

func (w *imageWriter) rule(x *Rule) { w.buf = appendBytes(w.buf, appendRule(nil, x)) }

func (r *imageReader) rule() Rule {
	inner := reader{b: []byte(r.string(ruleBytesMax + binary.MaxVarintLen64))}
	x := inner.rule()
	r.want(inner.end() == nil)
	return x
}
