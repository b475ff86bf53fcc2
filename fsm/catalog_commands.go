package fsm

import (
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm/fields"
)

// FoundCluster is the first command of a catalog: it sets the id of the cluster and the key that
// encrypts lock tokens, and places the partitions. The format level of the cluster becomes 1. A
// second one is refused with EntityExists.
type FoundCluster struct {
	ClusterID  string
	TokenKey   [16]byte
	Partitions []Partition // 1..N, without the catalog itself
}

// RenameCluster gives the cluster another id. A restore writes it, so that members of the cluster
// that was backed up and those of the restored cluster refuse each other. Members keep the id in
// their data folders and stop when the catalog has another; so PreconditionFails unless one member
// has all partitions.
type RenameCluster struct{ ClusterID string }

// PartitionFormed records that a leader of the partition was seen.
type PartitionFormed struct{ Partition PartitionID }

// CreateEntity creates an entity. Result: Entity, Version. Refused with EntityExists if the
// namespace has an entity of that name, EntityNotFound if there is no such namespace, QuotaExceeded
// or InvalidArgument if the namespace does not allow one more or one with these
// settings. A subscription requires its Topic (EntityNotFound) and a Name that is a
// path of that topic, and is placed in the partition of the topic; QuotaExceeded beyond
// subscriptionsMax of a topic.
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

// partitionBytesMin is the minimum size of a partition: id, formed, count.
const partitionBytesMin = 3

// ValidPath reports whether an entity of that kind can have this path. The name of a queue or topic
// has no segment "Subscriptions".
func ValidPath(kind EntityKind, path string) bool {
	topic, subscription, ok := SplitSubscriptionPath(path)
	if kind != SubscriptionEntity {
		return validName(path) && !ok && !isSubscriptions(path)
	}
	return ok && ValidPath(TopicEntity, topic) && validName(subscription) &&
		len(subscription) <= SubscriptionNameCharactersMax && !strings.Contains(subscription, "/")
}

// isSubscriptions reports whether the first or the last segment of a name is "Subscriptions".
func isSubscriptions(name string) bool {
	key := NameKey(name)
	return key == subscriptionsSegment || strings.HasPrefix(key, subscriptionsSegment+"/") || strings.HasSuffix(key, "/"+subscriptionsSegment)
}

// validName reports whether a name is valid for an entity: 1 to 260 ASCII letters and digits, '.',
// '-', '_', '~' and '/', no '/' at either end. ASCII only,
// because case folding of other letters changes with the Unicode tables of the compiler, and replicas
// of two releases must agree. '$' is excluded, so that names differ from reserved sub-paths
// ($DeadLetterQueue, $management).
func validName(name string) bool {
	if name == "" || len(name) > EntityNameBytesMax || name[0] == '/' || name[len(name)-1] == '/' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' && c != '~' && c != '/' {
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
	if !Within(len(c.Partitions), ShardsMax) || c.Partitions[0] != c.Partition {
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

func (FoundCluster) kind() Kind                           { return KindFoundCluster }
func (c FoundCluster) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c FoundCluster) Check() Code {
	if c.ClusterID == "" || len(c.ClusterID) > ClusterIDBytesMax || !Within(len(c.Partitions), PartitionsMax) {
		return InvalidArgument
	}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.ID != PartitionID(i+1) || !ValidReplicas(p.Replicas, PartitionReplicaMax) {
			return InvalidArgument
		}
	}
	return OK
}

func (c *FoundCluster) fields(x *fields.Codec) {
	fields.Text(x, &c.ClusterID)
	fields.Key(x, &c.TokenKey)
	for i := range fields.Len(x, &c.Partitions, partitionBytesMin) {
		c.Partitions[i].Fields(x)
	}
}

func (RenameCluster) kind() Kind                           { return KindRenameCluster }
func (c RenameCluster) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c RenameCluster) Check() Code {
	return CodeIf(c.ClusterID != "" && len(c.ClusterID) <= ClusterIDBytesMax)
}

func (c *RenameCluster) fields(x *fields.Codec) { fields.Text(x, &c.ClusterID) }

// Fields of a partition without the state of a move.
func (p *Partition) Fields(x *fields.Codec) {
	fields.Uint32(x, &p.ID)
	fields.Bool(x, &p.Formed)
	FieldReplicas(x, &p.Replicas)
}

func (PartitionFormed) kind() Kind                           { return KindPartitionFormed }
func (c PartitionFormed) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (PartitionFormed) Check() Code { return OK }

func (c *PartitionFormed) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Partition)
}

func (CreateEntity) kind() Kind                           { return KindCreateEntity }
func (c CreateEntity) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c CreateEntity) Check() Code {
	return CodeIf(c.Settings.ValidFor(c.Kind) && ValidKind(c.Kind, c.Topic, c.Rule) && ValidPath(c.Kind, c.Name) &&
		(c.Partition == CatalogPartition) == (c.Kind == SubscriptionEntity) && c.validShards() && c.validNamespace())
}

func (c *CreateEntity) fields(x *fields.Codec) {
	fields.Text(x, &c.Name)
	fields.Uint32(x, &c.Partition)
	c.Settings.Fields(x)
	fields.Uint8(x, &c.Kind)
	fields.Uint64(x, &c.Topic)
	fieldFirstRule(x, &c.Rule)
	if c.Settings.EnablePartitioning { // others have no list
		FieldPartitionIDs(x, &c.Partitions)
	}
	fields.Uint32(x, &c.Namespace)
	fieldAccess(x, &c.Access)
}

// FieldPartitionIDs lists a list of partitions for the codec.
func FieldPartitionIDs(x *fields.Codec, list *[]PartitionID) {
	for i := range fields.Len(x, list, 1) {
		fields.Uint32(x, &(*list)[i])
	}
}

func (UpdateEntity) kind() Kind                           { return KindUpdateEntity }
func (c UpdateEntity) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c UpdateEntity) Check() Code { return CodeIf(c.Settings.Validate() == nil) }

func (c *UpdateEntity) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	c.Settings.Fields(x)
}

func (DeleteEntity) kind() Kind                           { return KindDeleteEntity }
func (c DeleteEntity) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (DeleteEntity) Check() Code { return OK }

func (c *DeleteEntity) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
}

func (ForgetEntity) kind() Kind                           { return KindForgetEntity }
func (c ForgetEntity) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (ForgetEntity) Check() Code { return OK }

func (c *ForgetEntity) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
}
