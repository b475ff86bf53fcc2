package fsm

// MemberID names a member for ever: drawn at the first start on an empty data
// folder, written there, never reused. Text, so that it can be a raft address.
type MemberID string

// Replica is one copy of a partition. Number is unique within the partition and
// never reused: a member whose disk was wiped comes back as another replica.
type Replica struct {
	Member MemberID
	Number uint32
}

// Partition is a raft group as the catalog knows it. The first replica is the
// preferred leader.
type Partition struct {
	ID       PartitionID
	Replicas []Replica
	Formed   bool // a leader was seen: from now on nobody bootstraps this group again
}

// Entity is a queue as the catalog knows it.
type Entity struct {
	ID        EntityID
	Name      string // as spelled at creation; matched without case
	Partition PartitionID
	Version   uint64 // rises with every change of Settings
	Settings  QueueSettings
	Created   Instant
	Updated   Instant
	Dropping  bool // deleted by name; stays until its partition has dropped the messages
}

// Place is what an address resolved to: an entity and which of its sub-queues.
type Place struct {
	Entity
	Sub SubQueue
}

// Address is the place as the machines name it.
func (p Place) Address() Address { return Address{Entity: p.ID, Sub: p.Sub} }

// FoundCluster is the first command of a catalog: it names the cluster, fixes the
// key that seals lock tokens, and places the partitions. A second one is refused
// with EntityExists.
type FoundCluster struct {
	ClusterID  string
	SealKey    [16]byte
	Partitions []Partition // 1..N, without the catalog itself
}

// PartitionFormed records that a leader of the partition was seen.
type PartitionFormed struct{ Partition PartitionID }

// CreateEntity makes an entity. Result: Entity, Version, or EntityExists.
type CreateEntity struct {
	Name      string
	Partition PartitionID // chosen by the proposer: fewest entities
	Settings  QueueSettings
}

// UpdateEntity changes the settings of an entity. Result: Version; InvalidArgument when
// RequiresDuplicateDetection would change.
type UpdateEntity struct {
	Entity   EntityID
	Settings QueueSettings
}

// DeleteEntity frees the name and marks the entity Dropping.
type DeleteEntity struct{ Entity EntityID }

// ForgetEntity removes a Dropping entity whose partition has dropped it.
type ForgetEntity struct{ Entity EntityID }

func (FoundCluster) command()    {}
func (PartitionFormed) command() {}
func (CreateEntity) command()    {}
func (UpdateEntity) command()    {}
func (DeleteEntity) command()    {}
func (ForgetEntity) command()    {}
