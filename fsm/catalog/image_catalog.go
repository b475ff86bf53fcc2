package catalog

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/image"
)

const (
	// pathBytesMax is the longest path of a subscription.
	pathBytesMax = fsm.EntityNameBytesMax + len("/Subscriptions/") + fsm.SubscriptionNameCharactersMax
)

// catalogImage is an image of a Catalog.
type catalogImage struct {
	times         fsm.Times
	clusterID     string
	tokenKey      [16]byte
	level         uint32
	levelMax      uint32
	members       []*fsm.Member
	partitions    []*fsm.Partition
	lastNamespace fsm.NamespaceID
	namespaces    []*fsm.Namespace
	lastEntity    fsm.EntityID
	entities      []*fsm.Entity
	answers       answers.Frozen
}

// catalogWriter writes the state of a Catalog, and catalogReader reads it.
type (
	catalogWriter struct{ *image.Writer }
	catalogReader struct{ *image.Reader }
)

// Image freezes the state: it copies only a pointer per namespace and the lists of the answer
// table.
func (c *Machine) Image() fsm.Image { return c.freeze() }

func (c *Machine) freeze() *catalogImage {
	img := &catalogImage{
		times: c.times, clusterID: c.clusterID, tokenKey: c.tokenKey, level: c.level, levelMax: c.levelMax,
		members: c.members, partitions: c.partitions, lastNamespace: c.lastNamespace, lastEntity: c.lastEntity, entities: c.byID, answers: c.table.Freeze(),
		namespaces: make([]*fsm.Namespace, len(c.namespaces)),
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
func (img *catalogImage) Refs(func(fsm.Owner, fsm.Ref)) {}

func (img *catalogImage) write(w io.Writer, refs bool) (int64, error) {
	iw := catalogWriter{image.NewWriter(w, fsm.MachineCatalog, refs)}
	iw.Times(img.times)
	iw.Text(img.clusterID)
	for _, b := range img.tokenKey {
		iw.Byte(b)
	}
	iw.Uvarint(uint64(img.level))
	iw.Uvarint(uint64(img.levelMax))
	iw.Count(len(img.members))
	for _, m := range img.members {
		iw.Fields(m.Fields)
		iw.FlushIfFull()
	}
	iw.Count(len(img.partitions))
	for _, p := range img.partitions {
		iw.Fields(func(x *fields.Codec) { partitionFields(x, p) })
		iw.FlushIfFull()
	}
	iw.Uvarint(uint64(img.lastNamespace))
	iw.Count(len(img.namespaces))
	for _, n := range img.namespaces {
		iw.Fields(func(x *fields.Codec) { namespaceFields(x, n) })
		iw.FlushIfFull()
	}
	iw.Uvarint(uint64(img.lastEntity))
	iw.Count(len(img.entities))
	for _, e := range img.entities {
		iw.entity(e)
		iw.FlushIfFull()
	}
	img.answers.Write(iw.Writer)
	return iw.Finish()
}

func (w *catalogWriter) entity(e *fsm.Entity) {
	w.Uvarint(uint64(e.ID))
	w.Uvarint(uint64(e.Namespace))
	w.Byte(byte(e.Kind))
	w.Uvarint(uint64(e.Topic))
	w.Text(e.Name)
	w.Uvarint(uint64(e.Partition))
	w.Uvarint(e.Version)
	w.Settings(&e.Settings)
	w.Instant(e.Created)
	w.Instant(e.Updated)
	w.Bool(e.Dropping)
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
	w.Uvarint(e.AccessVersion)
	w.Byte(parts)
	if e.Rule != nil {
		w.Rule(e.Rule)
	}
	if len(e.Shards) > 0 {
		partitions := e.Partitions()
		w.Fields(func(x *fields.Codec) { fsm.FieldPartitionIDs(x, &partitions) })
	}
	if len(e.Access) > 0 {
		w.Fields(func(x *fields.Codec) { fieldTimedAccess(x, &e.Access) })
	}
}

// Bits that tell which optional parts of an entity follow.
const (
	entityHasRule   byte = 1 << 0
	entityHasShards byte = 1 << 1
	entityHasAccess byte = 1 << 2
)

// Restore replaces the state by that of an image. On an error the state machine is unchanged.
func (c *Machine) Restore(r io.Reader) error {
	fresh := New()
	ir := catalogReader{image.NewReader(r, fsm.MachineCatalog)}
	fresh.times = ir.Times()
	fresh.clusterID = ir.Text(fsm.ClusterIDBytesMax)
	for i := range fresh.tokenKey {
		fresh.tokenKey[i] = ir.Byte()
	}
	fresh.level, fresh.levelMax = ir.Uint32(), ir.Uint32()
	ir.Repeat(membersMax, func() { ir.member(fresh) })
	ir.Repeat(fsm.PartitionsMax, func() { ir.partition(fresh) })
	fresh.load = make([]int, len(fresh.partitions))
	fresh.lastNamespace = fsm.NamespaceID(ir.Uint32())
	ir.Repeat(fsm.NamespacesMax, func() { ir.namespace(fresh) })
	ir.hosts(fresh)
	founded := fresh.clusterID != ""
	ir.Require((fresh.level > 0) == founded && (fresh.levelMax == 0 || founded && fresh.levelMax >= fresh.level))
	ir.Require((len(fresh.partitions) > 0) == founded && (fresh.namespace(fsm.DefaultNamespace) != nil) == founded && (len(fresh.namespaces) > 0) == founded)
	fresh.lastEntity = fsm.EntityID(ir.Uvarint())
	ir.Repeat(fsm.EntitiesMax, func() { ir.entity(fresh) })
	for _, s := range fresh.namespaces {
		ir.names(s)
	}
	fresh.table.Read(ir.Reader)
	if err := ir.Finish(); err != nil {
		return fmt.Errorf("restore catalog: %w", err)
	}
	*c = *fresh
	c.table.Bind(&c.generation, func(*answers.Details) {})
	return nil
}

func (r *catalogReader) entity(c *Machine) {
	e := &fsm.Entity{
		ID: fsm.EntityID(r.Uvarint()), Namespace: fsm.NamespaceID(r.Uint32()), Kind: fsm.EntityKind(r.Byte()), Topic: fsm.EntityID(r.Uvarint()), Name: r.Text(pathBytesMax), Partition: fsm.PartitionID(r.Uint32()),
		Version: r.Uvarint(), Settings: r.Settings(), Created: r.Instant(), Updated: r.Instant(), Dropping: r.Bool(),
		AccessVersion: r.Uvarint(),
	}
	parts := r.Byte()
	r.Require(parts&^(entityHasRule|entityHasShards|entityHasAccess) == 0)
	if parts&entityHasRule != 0 {
		x := r.Rule()
		e.Rule = &x
	}
	if parts&entityHasShards != 0 {
		r.shards(c, e)
	}
	if parts&entityHasAccess != 0 {
		r.Fields(func(x *fields.Codec) { fieldTimedAccess(x, &e.Access) })
		r.requireAccess(e.Access)
		r.Require(len(e.Access) > 0)
	}
	r.Require((e.Kind == fsm.SubscriptionEntity) == (e.AccessVersion == 0) && (e.Kind != fsm.SubscriptionEntity || len(e.Access) == 0))
	r.Require(e.Kind == fsm.SubscriptionEntity || e.Settings.EnablePartitioning == (len(e.Shards) > 0))
	n := len(c.byID)
	r.Require(fsm.ValidPath(e.Kind, e.Name) && fsm.ValidKind(e.Kind, e.Topic, e.Rule) && e.Settings.ValidFor(e.Kind))
	r.Require(e.ID != 0 && e.ID-1+e.IDs() <= c.lastEntity && (n == 0 || c.byID[n-1].ID+c.byID[n-1].IDs() <= e.ID))
	r.Require(e.Partition != fsm.CatalogPartition && int64(e.Partition) <= int64(len(c.partitions)))
	s := c.namespace(e.Namespace)
	r.Require(s != nil)
	if r.Failed() {
		return
	}
	c.byID = append(c.byID, e)
	c.addLoad(e, 1)
	s.entityCount++
	if e.Dropping {
		c.dropping = append(c.dropping, e)
	} else {
		s.byName[e.Kind] = append(s.byName[e.Kind], nameEntry{fsm.NameKey(e.Name), e})
	}
}

// shards reads the partitions of the shards of an entity: each shard has a partition of its own.
func (r *catalogReader) shards(c *Machine, e *fsm.Entity) {
	var partitions []fsm.PartitionID
	r.Repeat(fsm.ShardsMax, func() {
		id := fsm.PartitionID(r.Uint32())
		r.Require(id != fsm.CatalogPartition && int64(id) <= int64(len(c.partitions)) && !slices.Contains(partitions, id))
		partitions = append(partitions, id)
	})
	r.Require(len(partitions) > 0 && partitions[0] == e.Partition)
	e.Shards = fsm.ShardsFrom(e.ID, partitions)
}

// names sorts the names of a namespace and checks them: no two entities have the same name, and
// every subscription has its topic.
func (r *catalogReader) names(s *namespaceState) {
	for kind, list := range s.byName {
		slices.SortFunc(list, func(a, b nameEntry) int { return cmp.Compare(a.key, b.key) })
		for i, x := range list {
			r.Require(i == 0 || list[i-1].key != x.key)
			if kind == int(fsm.TopicEntity) {
				_, taken := s.nameIndex(fsm.QueueEntity, x.key)
				r.Require(!taken)
			}
			if kind == int(fsm.SubscriptionEntity) {
				of, _, _ := fsm.SplitSubscriptionPath(x.key)
				at, found := s.nameIndex(fsm.TopicEntity, of)
				r.Require(found && isColocated(x.entity, s.byName[fsm.TopicEntity][at].entity))
			}
		}
	}
}

// isColocated reports whether a subscription belongs to a topic and is in the same partitions.
func isColocated(subscription, topic *fsm.Entity) bool {
	return subscription.Topic == topic.ID && subscription.Partition == topic.Partition &&
		slices.Equal(subscription.Partitions(), topic.Partitions())
}

// Digest returns a hash of the whole state: two replicas that applied the same entries have the
// same digest.
func (c *Machine) Digest() uint64 { return c.freeze().Digest() }

// Digest is [Machine.Digest] of the frozen state. It may run concurrently with Apply.
func (img *catalogImage) Digest() uint64 { return image.Digest(img.write) }
