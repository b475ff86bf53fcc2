package catalog

import (
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// Lookup finds an entity of a namespace by name or path, case-insensitively; an entity that is
// being deleted is not found. Queues and topics share one set of names.
func (c *Machine) Lookup(namespace fsm.NamespaceID, name string) (fsm.Entity, bool) {
	if s := c.namespace(namespace); s != nil {
		if e := s.lookup(name); e != nil {
			return *e, true
		}
	}
	return fsm.Entity{}, false
}

// ByID finds an entity by its id or that of a shard, also one that is being deleted.
func (c *Machine) ByID(id fsm.EntityID) (fsm.Entity, bool) {
	if i, found := c.idIndex(id); found {
		return *c.byID[i], true
	}
	return fsm.Entity{}, false
}

// Deleted reports whether an entity has been deleted, or is being deleted. It is false for an id that was not given yet,
// which a replica that is behind does not know.
func (c *Machine) Deleted(id fsm.EntityID) bool {
	i, found := c.idIndex(id)
	return id <= c.lastEntity && (!found || c.byID[i].Dropping)
}

// List returns up to most entities of a kind in a namespace in the order of their names,
// case-insensitively, beginning after the name after ("" begins at the start): subscriptions of one
// topic, or of all if topic is 0. Entities that are being deleted are left out.
func (c *Machine) List(namespace fsm.NamespaceID, kind fsm.EntityKind, topic fsm.EntityID, after string, most int) []fsm.Entity {
	s := c.namespace(namespace)
	if s == nil || kind > fsm.SubscriptionEntity {
		return nil
	}
	from, to := 0, len(s.byName[kind])
	if kind == fsm.SubscriptionEntity && topic != 0 {
		i, found := c.idIndex(topic)
		if !found || c.byID[i].Kind != fsm.TopicEntity || c.byID[i].Dropping || c.byID[i].Namespace != namespace {
			return nil
		}
		from, to = s.subscriptions(c.byID[i].Name)
	}
	if after != "" {
		i, found := s.nameIndex(kind, after)
		if found {
			i++
		}
		from = max(from, i)
	}
	list := make([]fsm.Entity, max(min(most, to-from), 0))
	for j := range list {
		list[j] = *s.byName[kind][from+j].entity
	}
	return list
}

// FindSubscriptions returns the paths of the subscriptions of all topics of a namespace whose names
// begin and end with given texts, case-insensitively, at most most. It looks at all subscriptions of
// the namespace.
func (c *Machine) FindSubscriptions(namespace fsm.NamespaceID, prefix, suffix string, most int) (paths []string) {
	s := c.namespace(namespace)
	if s == nil {
		return nil
	}
	prefix, suffix = fsm.NameKey(prefix), fsm.NameKey(suffix)
	for _, n := range s.byName[fsm.SubscriptionEntity] {
		if strings.HasSuffix(n.key, suffix) && len(paths) < most {
			if _, name, _ := fsm.SplitSubscriptionPath(n.key); strings.HasPrefix(name, prefix) {
				paths = append(paths, n.entity.Name)
			}
		}
	}
	return paths
}

// Dropping returns, by ID, the entities that are being deleted: their partition has not confirmed
// it yet.
func (c *Machine) Dropping() []fsm.Entity {
	list := make([]fsm.Entity, len(c.dropping))
	for i, e := range c.dropping {
		list[i] = *e
	}
	return list
}

// Entities returns the number of entities of all namespaces, without those being deleted.
func (c *Machine) Entities() int { return len(c.byID) - len(c.dropping) }

// QueuesAndTopics returns the number of queues and topics of a namespace, which its EntitiesMax limits. Those being deleted
// do not count.
func (c *Machine) QueuesAndTopics(id fsm.NamespaceID) int {
	s := c.namespace(id)
	if s == nil {
		return 0
	}
	return s.queuesAndTopics()
}

// PartitionLoad returns the number of entities and shards of each partition, those being deleted
// included: partition i+1 at i.
func (c *Machine) PartitionLoad() []int { return slices.Clone(c.load) }

// ClusterID returns the id of the cluster, "" before it is bootstrapped.
func (c *Machine) ClusterID() string { return c.clusterID }

// TokenKey returns the key that encrypts lock tokens. It is a secret.
func (c *Machine) TokenKey() [16]byte { return c.tokenKey }
