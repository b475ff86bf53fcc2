package catalog

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

func (c *Machine) createEntity(cmd fsm.CreateEntity) fsm.Result {
	switch {
	case c.clusterID == "":
		return fsm.Result{Code: fsm.PreconditionFails}
	case int64(max(cmd.Partition, slices.Max(append([]fsm.PartitionID{0}, cmd.Partitions...)))) > int64(len(c.partitions)):
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	if cmd.Kind == fsm.SubscriptionEntity {
		if code := c.inheritFromTopic(&cmd); code != fsm.OK {
			return fsm.Result{Code: code}
		}
	}
	s := c.namespace(cmd.Namespace)
	if s == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if s.lookup(cmd.Name) != nil {
		return fsm.Result{Code: fsm.EntityExists}
	}
	if len(c.byID) >= fsm.EntitiesMax {
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	if code := s.admits(&cmd); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	c.addEntity(s, &cmd)
	return fsm.Result{Entity: c.byID[len(c.byID)-1].ID, Version: 1}
}

// addEntity adds the entity that a command describes.
func (c *Machine) addEntity(s *namespaceState, cmd *fsm.CreateEntity) {
	e := &fsm.Entity{
		ID: c.lastEntity + 1, Shards: fsm.ShardsFrom(c.lastEntity+1, cmd.Partitions), Namespace: cmd.Namespace, Kind: cmd.Kind, Topic: cmd.Topic, Name: cmd.Name,
		Partition: cmd.Partition, Version: 1, Settings: cmd.Settings.WithDefaults(), Created: c.times.Wall, Updated: c.times.Wall, Rule: cmd.Rule,
	}
	if e.Kind != fsm.SubscriptionEntity {
		e.Access, e.AccessVersion = mergeAccess(nil, cmd.Access, c.times.Wall), 1
	}
	c.lastEntity += e.IDs()
	c.byID = append(c.byID, e)
	i, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind] = slices.Insert(s.byName[e.Kind], i, nameEntry{fsm.NameKey(e.Name), e})
	s.entityCount++
	c.addLoad(e, 1)
}

// inheritFromTopic completes the description of a subscription with what its topic determines: the
// namespace, the spelling of its name, and the partition.
func (c *Machine) inheritFromTopic(cmd *fsm.CreateEntity) fsm.Code {
	i, found := c.idIndex(cmd.Topic)
	if !found || c.byID[i].Dropping || c.byID[i].Kind != fsm.TopicEntity || cmd.Namespace != 0 && cmd.Namespace != c.byID[i].Namespace {
		return fsm.EntityNotFound
	}
	topic := c.byID[i]
	s := c.namespace(topic.Namespace)
	of, subscription, _ := fsm.SplitSubscriptionPath(cmd.Name)
	if fsm.NameKey(of) != fsm.NameKey(topic.Name) {
		return fsm.InvalidArgument
	}
	cmd.Namespace, cmd.Topic, cmd.Name = topic.Namespace, topic.ID, fsm.SubscriptionPath(topic.Name, subscription)
	cmd.Partition, cmd.Partitions = topic.Partition, topic.Partitions()
	if _, exists := s.nameIndex(fsm.SubscriptionEntity, cmd.Name); exists {
		return fsm.EntityExists
	}
	if from, to := s.subscriptions(topic.Name); to-from >= fsm.SubscriptionsMax {
		return fsm.QuotaExceeded
	}
	return fsm.OK
}

func (c *Machine) updateEntity(cmd fsm.UpdateEntity) fsm.Result {
	i, found := c.idIndex(cmd.Entity)
	if !found || c.byID[i].Dropping {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	old := c.byID[i]
	cmd.Settings = cmd.Settings.WithDefaults()
	if !cmd.Settings.ValidFor(old.Kind) || !old.Settings.CanChangeTo(&cmd.Settings) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	if old.Settings == cmd.Settings {
		return fsm.Result{Entity: old.ID, Version: old.Version}
	}
	if !c.namespace(old.Namespace).allows(old.Kind, &cmd.Settings, &old.Settings) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	e := *old
	e.Settings, e.Updated = cmd.Settings, c.times.Wall
	e.Version++
	c.replace(i, &e)
	return fsm.Result{Entity: e.ID, Version: e.Version}
}

func (c *Machine) deleteEntity(id fsm.EntityID) fsm.Result {
	i, found := c.idIndex(id)
	if !found || c.byID[i].Dropping {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	e := *c.byID[i]
	e.Dropping, e.Updated = true, c.times.Wall
	c.replaceByID(i, &e)
	s := c.namespace(e.Namespace)
	at, _ := s.nameIndex(e.Kind, e.Name)
	s.byName[e.Kind] = slices.Delete(s.byName[e.Kind], at, at+1)
	at, _ = findEntity(c.dropping, e.ID)
	c.dropping = slices.Insert(c.dropping, at, &e)
	if e.Kind == fsm.TopicEntity {
		c.deleteSubscriptions(s, &e)
	}
	return fsm.Result{}
}

// deleteSubscriptions removes the subscriptions of a topic; the topic represents them until its
// partition has deleted it. A subscription that is being deleted already is removed by its own
// ForgetEntity.
func (c *Machine) deleteSubscriptions(s *namespaceState, topic *fsm.Entity) {
	from, to := s.subscriptions(topic.Name)
	if from == to {
		return
	}
	c.addLoad(topic, from-to) // they are in the partitions of the topic
	s.entityCount -= to - from
	s.byName[fsm.SubscriptionEntity] = slices.Delete(s.byName[fsm.SubscriptionEntity], from, to)
	kept := make([]*fsm.Entity, 0, len(c.byID)) // an image may share the old slice
	for _, e := range c.byID {
		if e.Topic != topic.ID || e.Dropping {
			kept = append(kept, e)
		}
	}
	c.byID = kept
}

func (c *Machine) forgetEntity(id fsm.EntityID) fsm.Result {
	i, found := c.idIndex(id)
	switch {
	case !found:
		return fsm.Result{Code: fsm.EntityNotFound}
	case !c.byID[i].Dropping:
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	c.addLoad(c.byID[i], -1)
	c.namespace(c.byID[i].Namespace).entityCount--
	c.byID = slices.Concat(c.byID[:i], c.byID[i+1:])
	at, _ := findEntity(c.dropping, id)
	c.dropping = slices.Delete(c.dropping, at, at+1)
	return fsm.Result{}
}
