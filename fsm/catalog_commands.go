package fsm

import (
	"encoding/binary"
	"slices"
	"strings"
)

// FoundCluster is the first command of a catalog: it sets the id of the cluster and the key that
// encrypts lock tokens, and places the partitions. The format level of the cluster becomes 1. A
// second one is refused with EntityExists.
type FoundCluster struct {
	ClusterID  string
	TokenKey   [16]byte
	Partitions []Partition // 1..N, without the catalog itself
}

// PartitionFormed records that a leader of the partition was seen.
type PartitionFormed struct{ Partition PartitionID }

// CreateEntity creates an entity. Result: Entity, Version. Refused with EntityExists if the
// namespace has an entity of that name, EntityNotFound if there is no such namespace, QuotaExceeded
// or InvalidArgument if the namespace does not allow one more or one with these settings. A
// subscription requires its Topic (EntityNotFound) and a Name that is a path of that topic, and is
// placed in the partition of the topic; QuotaExceeded beyond subscriptionsMax of a topic.
type CreateEntity struct {
	Namespace NamespaceID // for a subscription that of its topic
	Kind      EntityKind
	Topic     EntityID // of a subscription, else 0
	Name      string
	Partition PartitionID // chosen by the proposer: fewest entities; 0 for a subscription
	Settings  EntitySettings
	Rule      *Rule // first rule of a subscription; nil for the default one
	// Partitions are those of the shards of a queue or topic with EnablePartitioning, chosen by the
	// proposer: 1 to ShardsMax, each once, Partition first. Empty for other entities: a
	// subscription has those of its topic.
	Partitions []PartitionID
	Access     []AccessRule // none for a subscription
}

// UpdateEntity changes the settings of an entity. Result: Version; InvalidArgument if
// RequiresDuplicateDetection, RequiresSession or EnablePartitioning would change.
type UpdateEntity struct {
	Entity   EntityID
	Settings EntitySettings
}

// DeleteEntity frees the name and marks the entity Dropping. The subscriptions of a topic are
// removed at once: only their topic is marked.
type DeleteEntity struct{ Entity EntityID }

// ForgetEntity removes a Dropping entity that its partition has deleted.
type ForgetEntity struct{ Entity EntityID }

func (FoundCluster) command() {}

// partitionBytesMin is the fewest bytes a partition takes: id, formed, count.
const partitionBytesMin = 3

func appendFoundCluster(dst []byte, c FoundCluster) []byte {
	dst = appendString(dst, c.ClusterID)
	dst = append(dst, c.TokenKey[:]...)
	return appendPartitions(dst, c.Partitions)
}

func (r *reader) foundCluster() FoundCluster {
	c := FoundCluster{ClusterID: r.string(), TokenKey: r.key()}
	c.Partitions = make([]Partition, r.count(partitionBytesMin))
	for i := range c.Partitions {
		c.Partitions[i] = r.partition()
	}
	return c
}

func (r *reader) key() (key [16]byte) {
	if len(r.b) < len(key) {
		r.fail(errShort)
		return key
	}
	r.b = r.b[copy(key[:], r.b):]
	return key
}

func appendPartitions(dst []byte, partitions []Partition) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(partitions)))
	for i := range partitions {
		dst = appendPartition(dst, &partitions[i])
	}
	return dst
}

func appendPartition(dst []byte, p *Partition) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.ID))
	dst = appendBool(dst, p.Formed)
	return appendReplicas(dst, p.Replicas)
}

func (r *reader) partition() Partition {
	return Partition{ID: PartitionID(r.uint32()), Formed: r.bool(), Replicas: r.replicas()}
}

func appendCreateEntity(dst []byte, c CreateEntity) []byte {
	dst = appendString(dst, c.Name)
	dst = binary.AppendUvarint(dst, uint64(c.Partition))
	dst = append(appendSettings(dst, c.Settings), byte(c.Kind))
	dst = appendFirstRule(binary.AppendUvarint(dst, uint64(c.Topic)), c.Rule)
	if c.Settings.EnablePartitioning { // the list is there only then
		dst = appendPartitionIDs(dst, c.Partitions)
	}
	return appendAccess(binary.AppendUvarint(dst, uint64(c.Namespace)), c.Access)
}

func appendPartitionIDs(dst []byte, partitions []PartitionID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(partitions)))
	for _, id := range partitions {
		dst = binary.AppendUvarint(dst, uint64(id))
	}
	return dst
}

func (r *reader) createEntity() CreateEntity {
	c := CreateEntity{
		Name: r.string(), Partition: PartitionID(r.uint32()), Settings: r.settings(),
		Kind: EntityKind(r.byte()), Topic: EntityID(r.uvarint()), Rule: r.firstRule(),
	}
	if c.Settings.EnablePartitioning {
		c.Partitions = make([]PartitionID, r.count(1))
		for i := range c.Partitions {
			c.Partitions[i] = PartitionID(r.uint32())
		}
	}
	c.Namespace, c.Access = NamespaceID(r.uint32()), r.access()
	return c
}

func validFoundation(c FoundCluster) bool {
	if c.ClusterID == "" || len(c.ClusterID) > clusterIDBytesMax ||
		!within(len(c.Partitions), partitionsMax) {
		return false
	}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.ID != PartitionID(i+1) || !validReplicas(p.Replicas, partitionReplicaMax) {
			return false
		}
	}
	return true
}

// validPath reports whether an entity of that kind can have this path. The name of a queue or topic
// has no segment "Subscriptions".
func validPath(kind EntityKind, path string) bool {
	topic, subscription, ok := SplitSubscriptionPath(path)
	if kind != SubscriptionEntity {
		return validName(path) && !ok && !isSubscriptions(path)
	}
	return ok && validPath(TopicEntity, topic) && validName(subscription) &&
		len(subscription) <= subscriptionNameCharactersMax && !strings.Contains(subscription, "/")
}

// isSubscriptions reports whether the first or the last segment of a name is "Subscriptions".
func isSubscriptions(name string) bool {
	key := nameKey(name)
	return key == subscriptionsSegment || strings.HasPrefix(key, subscriptionsSegment+"/") || strings.HasSuffix(key, "/"+subscriptionsSegment)
}

// validName reports whether a name is valid for an entity: 1 to 260 ASCII letters and digits, '.',
// '-', '_' and '/', no '/' at either end. ASCII only, because case folding of other letters changes
// with the Unicode tables of the compiler, and replicas of two releases must agree. '$' is
// excluded, so that names differ from reserved sub-paths ($DeadLetterQueue, $management).
func validName(name string) bool {
	if name == "" || len(name) > entityNameBytesMax || name[0] == '/' || name[len(name)-1] == '/' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' && c != '/' {
			return false
		}
	}
	return true
}

// validShards reports whether an entity can be created in these partitions: shards exactly if the
// settings require them, each in a partition of its own.
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

// validNamespace reports whether an entity can be created in that namespace with these access
// rules. A subscription has the namespace and the access rules of its topic.
func (c CreateEntity) validNamespace() bool {
	if c.Kind == SubscriptionEntity {
		return len(c.Access) == 0
	}
	return c.Namespace != 0 && validAccess(c.Access)
}

func (PartitionFormed) command() {}
func (CreateEntity) command()    {}
func (UpdateEntity) command()    {}
func (DeleteEntity) command()    {}
func (ForgetEntity) command()    {}
