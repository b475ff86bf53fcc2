package fsm

// MemberID identifies a member permanently: it is drawn at the first start on an empty data
// directory, stored there, and never reused. It is text so that it can be a Raft address.
type MemberID string

// Replica is one replica of a partition. Number is unique within the partition and never reused: a
// member whose disk was wiped gets another replica.
type Replica struct {
	Member MemberID `json:"Member"`
	Number uint32   `json:"Number"`
}

// Partition is the catalog's record of a Raft group. The first replica is the preferred leader.
type Partition struct {
	ID       PartitionID `json:"ID"`
	Replicas []Replica   `json:"Replicas"`
	Formed   bool        `json:"Formed"` // a leader was seen: from now on no member bootstraps the group again
	// Target is the planned placement, nil if it is the current one. Until it is reached, members
	// hold the replicas of both lists. A replica that is in both is the same replica.
	Target []Replica `json:"Target"`
	Paused bool      `json:"Paused"` // the move to Target is paused
	Last   uint32    `json:"Last"`   // highest number ever assigned to a replica of it
}

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
