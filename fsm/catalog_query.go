package fsm

import "slices"

// Lookup finds an entity of a namespace by name or path, without case; one that is dropping
// is not found. Queues and topics share one space of names.
func (c *Catalog) Lookup(namespace NamespaceID, name string) (Entity, bool) {
	if s := c.namespace(namespace); s != nil {
		if e := s.lookup(name); e != nil {
			return *e, true
		}
	}
	return Entity{}, false
}

// ByID finds an entity by its id or that of a shard, also one that is dropping.
func (c *Catalog) ByID(id EntityID) (Entity, bool) {
	if i, found := c.idIndex(id); found {
		return *c.byID[i], true
	}
	return Entity{}, false
}

// List returns up to most entities of a kind in a namespace in the order of their names
// without case, beginning behind the name after ("" begins at the start): of subscriptions
// those of one topic, or of all where it is 0. Dropping ones are left out.
func (c *Catalog) List(namespace NamespaceID, kind EntityKind, topic EntityID, after string, most int) []Entity {
	s := c.namespace(namespace)
	if s == nil || kind > SubscriptionEntity {
		return nil
	}
	from, to := 0, len(s.byName[kind])
	if kind == SubscriptionEntity && topic != 0 {
		i, found := c.idIndex(topic)
		if !found || c.byID[i].Kind != TopicEntity || c.byID[i].Dropping || c.byID[i].Namespace != namespace {
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
	list := make([]Entity, max(min(most, to-from), 0))
	for j := range list {
		list[j] = *s.byName[kind][from+j].entity
	}
	return list
}

// Dropping returns the entities that were deleted and whose partition has not dropped
// them yet, by ID.
func (c *Catalog) Dropping() []Entity {
	list := make([]Entity, len(c.dropping))
	for i, e := range c.dropping {
		list[i] = *e
	}
	return list
}

// Entities is the number of entities of all namespaces, without dropping ones.
func (c *Catalog) Entities() int { return len(c.byID) - len(c.dropping) }

// PartitionLoad is the number of entities and shards of each partition, dropping ones included:
// partition i+1 at i.
func (c *Catalog) PartitionLoad() []int { return slices.Clone(c.load) }

// ClusterID is the name of the cluster, "" before it was founded.
func (c *Catalog) ClusterID() string { return c.clusterID }

// TokenKey is the key that seals lock tokens. It is a secret.
func (c *Catalog) TokenKey() [16]byte { return c.tokenKey }
