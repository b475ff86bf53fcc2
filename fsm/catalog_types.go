package fsm

// MemberID names a member for ever: drawn at the first start on an empty data
// folder, written there, never reused. Text, so that it can be a raft address.
type MemberID string

// Replica is one copy of a partition. Number is unique within the partition and
// never reused: a member whose disk was wiped comes back as another replica.
type Replica struct {
	Member MemberID `json:"Member"`
	Number uint32   `json:"Number"`
}

// Partition is a raft group as the catalog knows it. The first replica is the
// preferred leader.
type Partition struct {
	ID       PartitionID `json:"ID"`
	Replicas []Replica   `json:"Replicas"`
	Formed   bool        `json:"Formed"` // a leader was seen: from now on nobody bootstraps this group again
	// Target is where it shall lie, nil when that is where it lies. Until it is reached,
	// members hold the replicas of both. Those that both have are the same replica.
	Target []Replica `json:"Target"`
	Paused bool      `json:"Paused"` // the move to Target waits
	Last   uint32    `json:"Last"`   // highest number ever given to a replica of it
}

// Entity is a queue, topic or subscription as the catalog knows it.
type Entity struct {
	ID        EntityID    `json:"ID"`
	Namespace NamespaceID `json:"Namespace"`
	Kind      EntityKind  `json:"Kind"`
	// Topic is that of a subscription, else 0. The two share a partition.
	Topic EntityID `json:"Topic"`
	// Name is the path, as spelled at creation; matched without case. That of a subscription
	// is made by SubscriptionPath.
	Name      string         `json:"Name"`
	Partition PartitionID    `json:"Partition"`
	Version   uint64         `json:"Version"` // rises with every change of Settings
	Settings  EntitySettings `json:"Settings"`
	Created   Instant        `json:"Created"`
	Updated   Instant        `json:"Updated"`
	Rule      *Rule          `json:"Rule"`     // that a subscription is made with; nil for the default one
	Dropping  bool           `json:"Dropping"` // deleted by name; stays until its partition has dropped the messages
	// Shards are the parts of a partitioned queue or topic, or of a subscription of such a
	// topic (beside those of the topic, in their order), at most ShardsMax; nil else. They are
	// drawn at creation and never change. Partition and ID are those of the first.
	Shards []Shard `json:"Shards"`
	// Access are its own access rules, at most accessRulesMax; a subscription has those of its
	// topic. AccessVersion rises with every change of them.
	Access        []AccessRule `json:"Access"`
	AccessVersion uint64       `json:"AccessVersion"`
}

// EntityRef is what an address resolved to: an entity and which of its sub-queues.
type EntityRef struct {
	Entity
	Sub SubQueue
}

// Address is the place as the machines name it.
func (p EntityRef) Address() Address { return Address{Entity: p.ID, Sub: p.Sub} }

// FoundCluster is the first command of a catalog: it names the cluster, fixes the
// key that seals lock tokens, and places the partitions. The level of the cluster is 1. A
// second one is refused with EntityExists.
type FoundCluster struct {
	ClusterID  string
	TokenKey   [16]byte
	Partitions []Partition // 1..N, without the catalog itself
}

// PartitionFormed records that a leader of the partition was seen.
type PartitionFormed struct{ Partition PartitionID }

// CreateEntity makes an entity. Result: Entity, Version; EntityExists when the namespace has
// one of that name, EntityNotFound when there is no such namespace, QuotaExceeded or
// InvalidArgument when it does not allow one more or one with these settings. A subscription
// wants its Topic to be there (EntityNotFound), its Name to be a path of that topic, and
// lands in the partition of the topic; QuotaExceeded beyond subscriptionsMax of a topic.
type CreateEntity struct {
	Namespace NamespaceID // of a subscription that of its topic
	Kind      EntityKind
	Topic     EntityID // of a subscription, else 0
	Name      string
	Partition PartitionID // chosen by the proposer: fewest entities; 0 for a subscription
	Settings  EntitySettings
	Rule      *Rule // of a subscription; nil for the default one
	// Partitions are those of the shards of a queue or topic with EnablePartitioning, chosen by
	// the proposer: 1 to ShardsMax, each once, Partition first. Else none: a subscription
	// has those of its topic.
	Partitions []PartitionID
	Access     []AccessRule // none for a subscription
}

// UpdateEntity changes the settings of an entity. Result: Version; InvalidArgument when
// RequiresDuplicateDetection, RequiresSession or EnablePartitioning would change.
type UpdateEntity struct {
	Entity   EntityID
	Settings EntitySettings
}

// DeleteEntity frees the name and marks the entity Dropping. The subscriptions of a topic
// go with it, at once: they are not marked, their topic is.
type DeleteEntity struct{ Entity EntityID }

// ForgetEntity removes a Dropping entity whose partition has dropped it.
type ForgetEntity struct{ Entity EntityID }

func (FoundCluster) command()    {}
func (PartitionFormed) command() {}
func (CreateEntity) command()    {}
func (UpdateEntity) command()    {}
func (DeleteEntity) command()    {}
func (ForgetEntity) command()    {}
