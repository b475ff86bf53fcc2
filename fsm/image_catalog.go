package fsm

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
)

// catalogImage is an image of a Catalog.
type catalogImage struct {
	clock      Instant
	clusterID  string
	sealKey    [16]byte
	partitions []*Partition
	last       EntityID
	entities   []*Entity
	origins    []frozenOrigin
}

// Image freezes the state: it copies nothing but the answers' table of contents.
func (c *Catalog) Image() Image { return c.freeze() }

func (c *Catalog) freeze() *catalogImage {
	img := &catalogImage{
		clock: c.clock, clusterID: c.clusterID, sealKey: c.sealKey,
		partitions: c.partitions, last: c.last, entities: c.byID, origins: c.table.freeze(),
	}
	c.era++
	return img
}

// WriteTo writes the image.
func (img *catalogImage) WriteTo(w io.Writer) (int64, error) { return img.write(w, true) }

// Refs visits nothing: a catalog has no bodies.
func (img *catalogImage) Refs(func(Owner, Ref)) {}

func (img *catalogImage) write(w io.Writer, refs bool) (int64, error) {
	iw := newImageWriter(w, machineCatalog, refs)
	iw.instant(img.clock)
	iw.string(img.clusterID)
	for _, b := range img.sealKey {
		iw.byte(b)
	}
	iw.count(len(img.partitions))
	for _, p := range img.partitions {
		iw.buf = appendPartition(iw.buf, p)
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
	w.string(e.Name)
	w.uvarint(uint64(e.Partition))
	w.uvarint(e.Version)
	w.settings(e.Settings)
	w.instant(e.Created)
	w.instant(e.Updated)
	w.bool(e.Dropping)
}

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
	ir.more(partitionsMax, func() { ir.partition(fresh) })
	ir.want((len(fresh.partitions) == 0) == (fresh.clusterID == ""))
	fresh.load = make([]int, len(fresh.partitions))
	fresh.last = EntityID(ir.uvarint())
	ir.more(entitiesMax, func() { ir.entity(fresh) })
	ir.names(fresh)
	ir.answers(&fresh.table)
	if err := ir.finish(); err != nil {
		return fmt.Errorf("restore catalog: %w", err)
	}
	*c = *fresh
	c.table.era = &c.era
	return nil
}

func (r *imageReader) partition(c *Catalog) {
	p := &Partition{ID: PartitionID(r.limited(math.MaxUint32)), Formed: r.bool()}
	r.more(partitionReplicaMax, func() {
		member := MemberID(r.string(memberIDBytesMax))
		p.Replicas = append(p.Replicas, Replica{Member: member, Number: r.uint32()})
	})
	r.want(int(p.ID) == len(c.partitions)+1 && len(p.Replicas) > 0)
	c.partitions = append(c.partitions, p)
}

func (r *imageReader) entity(c *Catalog) {
	e := &Entity{
		ID: EntityID(r.uvarint()), Name: r.string(entityNameBytesMax), Partition: PartitionID(r.uint32()),
		Version: r.uvarint(), Settings: r.settings(), Created: r.instant(), Updated: r.instant(), Dropping: r.bool(),
	}
	n := len(c.byID)
	r.want(validName(e.Name) && e.ID != 0 && e.ID <= c.last && (n == 0 || c.byID[n-1].ID < e.ID))
	r.want(e.Partition != CatalogPartition && int64(e.Partition) <= int64(len(c.partitions)))
	if r.err != nil {
		return
	}
	c.byID = append(c.byID, e)
	c.load[e.Partition-1]++
	if e.Dropping {
		c.dropping = append(c.dropping, e)
	} else {
		c.byName = append(c.byName, named{nameKey(e.Name), e})
	}
}

// names puts the names in order; two entities with one name cannot be.
func (r *imageReader) names(c *Catalog) {
	slices.SortFunc(c.byName, func(a, b named) int { return cmp.Compare(a.key, b.key) })
	for i := 1; i < len(c.byName); i++ {
		r.want(c.byName[i-1].key != c.byName[i].key)
	}
}

// Digest is a hash of the whole state: two replicas that applied the same entries have
// the same digest.
func (c *Catalog) Digest() uint64 { return digest(c.freeze()) }
