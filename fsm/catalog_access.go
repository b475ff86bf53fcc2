package fsm

import (
	"cmp"
	"slices"
)

// mergeAccess returns the rules that replace old: sorted by name, with the times of those that
// existed, so that the result equals old if nothing changes.
func mergeAccess(old, rules []AccessRule, now Instant) []AccessRule {
	list := slices.Clone(rules)
	slices.SortFunc(list, func(a, b AccessRule) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list {
		a := &list[i]
		a.Created, a.Updated = now, now
		at := slices.IndexFunc(old, func(b AccessRule) bool { return b.Name == a.Name })
		if at < 0 {
			continue
		}
		a.Created = old[at].Created
		if b := old[at]; a.Primary == b.Primary && a.Secondary == b.Secondary && a.Rights == b.Rights {
			a.Updated = b.Updated
		}
	}
	return list
}

// setAccess replaces the access rules of an entity or namespace.
func (c *Catalog) setAccess(cmd SetAccess) Result {
	s := c.namespace(cmd.Namespace)
	if s == nil {
		return Result{Code: EntityNotFound}
	}
	if cmd.Entity != 0 {
		return c.setEntityAccess(cmd)
	}
	if cmd.Version != 0 && cmd.Version != s.Version {
		return Result{Code: PreconditionFails}
	}
	if rules := mergeAccess(s.Access, cmd.Rules, c.times.Wall); !slices.Equal(rules, s.Access) {
		n := *s.Namespace
		n.Access = rules
		s.change(&n, c.times.Wall)
	}
	return Result{Version: s.Version}
}

func (c *Catalog) setEntityAccess(cmd SetAccess) Result {
	i, found := c.idIndex(cmd.Entity)
	if !found || c.byID[i].Dropping || c.byID[i].Namespace != cmd.Namespace {
		return Result{Code: EntityNotFound}
	}
	e := *c.byID[i]
	switch {
	case e.Kind == SubscriptionEntity:
		return Result{Code: InvalidArgument}
	case cmd.Version != 0 && cmd.Version != e.AccessVersion:
		return Result{Code: PreconditionFails}
	}
	if rules := mergeAccess(e.Access, cmd.Rules, c.times.Wall); !slices.Equal(rules, e.Access) {
		e.Access, e.Updated = rules, c.times.Wall
		e.AccessVersion++
		c.replace(i, &e)
	}
	return Result{Version: e.AccessVersion}
}

// Access returns the access rules with which a client can sign for a path of a namespace: those of
// the entity that the path names, for a subscription those of its topic, and those of the
// namespace. A path that names no entity has none of its own. The caller removes sub-queue suffixes
// and management nodes from the path, and must not write to the lists. Access allocates nothing.
func (c *Catalog) Access(namespace NamespaceID, path string) (own, namespaceRules []AccessRule) {
	s := c.namespace(namespace)
	if s == nil {
		return nil, nil
	}
	for _, kind := range []EntityKind{QueueEntity, TopicEntity} {
		if i, found := s.nameIndex(kind, path); found {
			return s.byName[kind][i].entity.Access, s.Access
		}
	}
	if i, found := s.nameIndex(SubscriptionEntity, path); found {
		topic, _ := c.idIndex(s.byName[SubscriptionEntity][i].entity.Topic)
		return c.byID[topic].Access, s.Access
	}
	return nil, s.Access
}
