package fsm

// Entity is the catalog's record of a queue, topic or subscription.
type Entity struct {
	ID        EntityID    `json:"ID"`
	Namespace NamespaceID `json:"Namespace"`
	Kind      EntityKind  `json:"Kind"`
	// Topic is the topic of a subscription, else 0. The two are in the same partition.
	Topic EntityID `json:"Topic"`
	// Name is the path, as spelled at creation; matched case-insensitively. The path of a
	// subscription is made by SubscriptionPath.
	Name      string         `json:"Name"`
	Partition PartitionID    `json:"Partition"`
	Version   uint64         `json:"Version"` // rises with every change of Settings
	Settings  EntitySettings `json:"Settings"`
	Created   Instant        `json:"Created"`
	Updated   Instant        `json:"Updated"`
	Rule      *Rule          `json:"Rule"`     // first rule of a subscription; nil for the default one
	Dropping  bool           `json:"Dropping"` // deleted by name; removed when its partition has deleted the messages
	// Shards are the shards of a partitioned queue or topic, or of a subscription of such a topic
	// (in the partitions of the topic's shards, in their order), at most ShardsMax; nil for other
	// entities. They are assigned at creation and never change. Partition and ID are those of the
	// first shard.
	Shards []Shard `json:"Shards"`
	// Access are its own access rules, at most AccessRulesMax; a subscription has those of its
	// topic. AccessVersion rises with every change of them.
	Access        []AccessRule `json:"Access"`
	AccessVersion uint64       `json:"AccessVersion"`
}

// EntityRef is a resolved address: an entity and one of its sub-queues.
type EntityRef struct {
	Entity
	Sub SubQueue
}

// Address returns the address that commands use.
func (p EntityRef) Address() Address { return Address{Entity: p.ID, Sub: p.Sub} }

// ShardsMax is the maximum number of shards of an entity.
const ShardsMax = 16

// Shard is one part of a partitioned entity. In the state machine of its partition it is an
// ordinary entity that knows nothing of the other shards. The router decides which message belongs
// to which shard before it is sent.
type Shard struct {
	Partition PartitionID `json:"Partition"`
	Entity    EntityID    `json:"Entity"`
}

// ShardShift is the lowest bit of the shard in a sequence number, as in the cloud service: it leaves 48 bits
// for the number within the shard.
const ShardShift = 48

// Shard returns the shard in a sequence number that a client sees, 0 if the entity has no shards.
func (n SequenceNumber) Shard() int { return int(n >> ShardShift) }

// ShardKey returns the key that binds a message to a shard of a partitioned entity: its session, else its
// partition key, else its id if the entity detects duplicates. False means that the message may go to any shard.
func (e *Entity) ShardKey(m *Message) (key string, bound bool) {
	switch {
	case m.HasSession:
		return m.Session, true
	case m.PartitionKey != "":
		return m.PartitionKey, true
	case e.Settings.RequiresDuplicateDetection && m.ID != "":
		return m.ID, true
	}
	return "", false
}

// The ids of the shards of an entity are consecutive, the first is that of the entity itself: the
// entity of a shard is found by binary search, without a second index.

// ShardsFrom returns the shards of the entity id in these partitions; nil for none.
func ShardsFrom(id EntityID, partitions []PartitionID) []Shard {
	if len(partitions) == 0 {
		return nil
	}
	shards := make([]Shard, len(partitions))
	for i, partition := range partitions {
		shards[i] = Shard{Partition: partition, Entity: id + EntityID(i)}
	}
	return shards
}

// ShardOf returns the index of the shard with that id; false if there is none, also if the entity
// is not partitioned.
func (e *Entity) ShardOf(id EntityID) (int, bool) {
	if id < e.ID || id-e.ID >= EntityID(len(e.Shards)) {
		return 0, false
	}
	return int(id - e.ID), true
}

// IDs returns the number of ids that an entity uses.
func (e *Entity) IDs() EntityID { return EntityID(max(1, len(e.Shards))) }

// Partitions returns the partitions of the shards.
func (e *Entity) Partitions() []PartitionID {
	list := make([]PartitionID, len(e.Shards))
	for i, shard := range e.Shards {
		list[i] = shard.Partition
	}
	return list
}
