package catalog

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// mergeAccess returns the rules that replace old: sorted by name, with the times of those that
// existed, so that the result equals old if nothing changes.
func mergeAccess(old, rules []fsm.AccessRule, now fsm.Instant) []fsm.AccessRule {
	list := slices.Clone(rules)
	slices.SortFunc(list, func(a, b fsm.AccessRule) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list {
		a := &list[i]
		a.Created, a.Updated = now, now
		at := slices.IndexFunc(old, func(b fsm.AccessRule) bool { return b.Name == a.Name })
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

// Withdraws reports whether an encoded command only withdraws access rules: each of those that it leaves exists already, as
// it is.
func (c *Machine) Withdraws(command []byte) bool {
	info, err := fsm.PeekCommand(command)
	if err != nil || info.Kind != fsm.KindSetAccess {
		return false
	}
	_, decoded, _ := fsm.DecodeCommand(command)
	cmd, ok := decoded.(fsm.SetAccess)
	s := c.namespace(cmd.Namespace)
	if !ok || s == nil {
		return false
	}
	old := s.Access
	if cmd.Entity != 0 {
		i, found := c.idIndex(cmd.Entity)
		if !found {
			return false
		}
		old = c.byID[i].Access
	}
	return !slices.ContainsFunc(cmd.Rules, func(a fsm.AccessRule) bool {
		return !slices.ContainsFunc(old, func(b fsm.AccessRule) bool {
			return a.Name == b.Name && a.Primary == b.Primary && a.Secondary == b.Secondary && a.Rights == b.Rights
		})
	})
}

// setAccess replaces the access rules of an entity or namespace.
func (c *Machine) setAccess(cmd fsm.SetAccess) fsm.Result {
	s := c.namespace(cmd.Namespace)
	if s == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if cmd.Entity != 0 {
		return c.setEntityAccess(cmd)
	}
	if cmd.Version != 0 && cmd.Version != s.Version {
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	if rules := mergeAccess(s.Access, cmd.Rules, c.times.Wall); !slices.Equal(rules, s.Access) {
		n := *s.Namespace
		n.Access = rules
		s.change(&n, c.times.Wall)
	}
	return fsm.Result{Version: s.Version}
}

func (c *Machine) setEntityAccess(cmd fsm.SetAccess) fsm.Result {
	i, found := c.idIndex(cmd.Entity)
	if !found || c.byID[i].Dropping || c.byID[i].Namespace != cmd.Namespace {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	e := *c.byID[i]
	switch {
	case e.Kind == fsm.SubscriptionEntity:
		return fsm.Result{Code: fsm.InvalidArgument}
	case cmd.Version != 0 && cmd.Version != e.AccessVersion:
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	if rules := mergeAccess(e.Access, cmd.Rules, c.times.Wall); !slices.Equal(rules, e.Access) {
		e.Access, e.Updated = rules, c.times.Wall
		e.AccessVersion++
		c.replace(i, &e)
	}
	return fsm.Result{Version: e.AccessVersion}
}

// Access returns the access rules with which a client can sign for a path of a namespace: those of
// the entity that the path names, for a subscription those of its topic, and those of the
// namespace. A path that names no entity has none of its own. The caller removes sub-queue suffixes
// and management nodes from the path, and must not write to the lists. Access allocates nothing.
func (c *Machine) Access(namespace fsm.NamespaceID, path string) (own, namespaceRules []fsm.AccessRule) {
	s := c.namespace(namespace)
	if s == nil {
		return nil, nil
	}
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity} {
		if i, found := s.nameIndex(kind, path); found {
			return s.byName[kind][i].entity.Access, s.Access
		}
	}
	if i, found := s.nameIndex(fsm.SubscriptionEntity, path); found {
		topic, _ := c.idIndex(s.byName[fsm.SubscriptionEntity][i].entity.Topic)
		return c.byID[topic].Access, s.Access
	}
	return nil, s.Access
}
