package fsm

import "slices"

// ShardsMax is the most shards of an entity.
const ShardsMax = 16

// Shard is one part of a partitioned entity: an entity of the message machine of its
// partition like any other, that knows nothing of the other shards. Which message belongs
// to which shard is decided outside the machines, before it is sent.
type Shard struct {
	Partition PartitionID `json:"Partition"`
	Entity    EntityID    `json:"Entity"`
}

// The ids of the shards of an entity follow one another, the first is that of the entity
// itself: whoever has the id of a shard finds the entity by a search in the sorted list,
// and no second index is needed.

// shardsFrom gives the shards of the entity id, in these partitions; nil for none.
func shardsFrom(id EntityID, partitions []PartitionID) []Shard {
	if len(partitions) == 0 {
		return nil
	}
	shards := make([]Shard, len(partitions))
	for i, partition := range partitions {
		shards[i] = Shard{Partition: partition, Entity: id + EntityID(i)}
	}
	return shards
}

// ShardOf says which shard of an entity has that id; false when none has, also when the
// entity is not partitioned.
func (e *Entity) ShardOf(id EntityID) (int, bool) {
	if id < e.ID || id-e.ID >= EntityID(len(e.Shards)) {
		return 0, false
	}
	return int(id - e.ID), true
}

// ids is how many ids an entity takes.
func (e *Entity) ids() EntityID { return EntityID(max(1, len(e.Shards))) }

// partitions are those of the shards.
func (e *Entity) partitions() []PartitionID {
	list := make([]PartitionID, len(e.Shards))
	for i, shard := range e.Shards {
		list[i] = shard.Partition
	}
	return list
}

// validShards says whether an entity may be made in these partitions: shards exactly where
// the settings want them, each in a partition of its own.
func (c CreateEntity) validShards() bool {
	if !c.Settings.EnablePartitioning {
		return len(c.Partitions) == 0
	}
	if !within(len(c.Partitions), ShardsMax) || c.Partitions[0] != c.Partition {
		return false
	}
	for i, partition := range c.Partitions {
		if partition == CatalogPartition || slices.Contains(c.Partitions[:i], partition) {
			return false
		}
	}
	return true
}

// addLoad adds n to the load of every partition that an entity lies in.
func (c *Catalog) addLoad(e *Entity, n int) {
	if len(e.Shards) == 0 {
		c.load[e.Partition-1] += n
	}
	for _, shard := range e.Shards {
		c.load[shard.Partition-1] += n
	}
}
