package queue

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// registry creates, changes and deletes entities.
type registry struct {
	*core
	*releases
	*topics
	*fences

	tombstones []tombstone // of entities deleted because they were idle and not dropped by command since; sorted
}

// putEntity creates an entity or changes its settings. Existing locks and expiry times stay.
func (q *registry) putEntity(c fsm.PutEntity) fsm.Result {
	if code := c.Check(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	settings := c.Settings.WithDefaults()
	x := q.byID[c.Entity]
	switch {
	case x == nil:
		var code fsm.Code
		if x, code = q.createEntity(&c); code != fsm.OK {
			return fsm.Result{Code: code}
		}
		if x.detectsDuplicates(&settings) {
			x.window = &duplicateWindow{generation: *q.arena.Generation()}
		}
		if settings.RequiresSession {
			q.enableSessions(x)
		}
	case c.Version <= x.version:
		return fsm.Result{}
	case !x.settings.CanChangeTo(&settings) || x.kind != c.Kind || x.kind == fsm.SubscriptionEntity && x.topic.id != c.Topic:
		return fsm.Result{Code: fsm.InvalidArgument}
	case x.window != nil:
		x.window.raiseFloor(q.times.Wall, x.settings.DuplicateWindow)
	}
	old := x.settings
	x.version, x.settings, x.lastActivity = c.Version, q.settings.share(&settings), q.times.Serving
	q.notifyRedirected(x, old)
	q.scheduleIdle(x)
	q.scheduleSweep(x)
	x.subs[fsm.MainQueue].ix.RemoveStaleTimers()
	return fsm.Result{}
}

// createEntity creates an empty entity.
func (q *registry) createEntity(c *fsm.PutEntity) (*entityState, fsm.Code) {
	topic, first := q.byID[c.Topic], c.Rule
	if first == nil {
		first = defaultRule()
	}
	switch _, gone := q.findTombstone(c.Entity); {
	case gone:
		return nil, fsm.EntityNotFound
	case c.Kind != fsm.SubscriptionEntity:
		return q.addEntity(c.Entity, c.Kind), fsm.OK
	case topic == nil || topic.kind != fsm.TopicEntity:
		return nil, fsm.EntityNotFound
	}
	ready, _ := fsm.ParseRule(first) // was checked
	if topic.topicState.isFull(first.Filter.Kind, ready.Size, nil) {
		return nil, fsm.QuotaExceeded
	}
	x := q.addEntity(c.Entity, c.Kind)
	q.subscribe(x, topic, &rule{Rule: *first, parsed: ready, subscription: x, indexedBy: filter.ByFewest})
	return x, fsm.OK
}

// addEntity adds an empty entity; a subscription has no topic yet.
func (q *registry) addEntity(id fsm.EntityID, kind fsm.EntityKind) *entityState {
	x := &entityState{id: id, kind: kind}
	if kind == fsm.TopicEntity {
		x.topicState = newTopicState()
	}
	for i := range x.subs {
		sub := &x.subs[i]
		*sub = subqueue{
			entity:  x,
			address: fsm.Address{Entity: id, Sub: fsm.SubQueue(i)},
		}
		sub.ix.Init(q.arena, sub.address, x)
	}
	i, _ := q.entityIndex(id)
	q.entities = slices.Insert(q.entities, i, x)
	q.byID[id] = x
	return x
}

// dropEntity deletes an entity, or the tombstone of one that was deleted automatically.
func (q *registry) dropEntity(id fsm.EntityID) {
	q.removeTombstones(id)
	if x := q.byID[id]; x != nil {
		q.deleteEntity(x)
	}
}

// deleteEntity deletes an entity, a topic with its subscriptions. Bodies are released in steps,
// except those that a subscription shares with a topic that stays.
func (q *registry) deleteEntity(x *entityState) {
	switch x.kind {
	case fsm.TopicEntity:
		for _, y := range x.topicState.subscriptions {
			q.removeEntity(y)
		}
	case fsm.SubscriptionEntity:
		q.unsubscribe(x)
	case fsm.QueueEntity:
	}
	q.removeEntity(x)
	q.releasePending(releasesPerApply)
}

func (q *registry) removeEntity(x *entityState) {
	for i := range x.subs {
		sub := &x.subs[i]
		if messages := sub.ix.Freeze(); !messages.IsEmpty() {
			q.pendingReleases = append(q.pendingReleases, pendingRelease{messages: messages})
		}
		sub.dropped = true
		sub.ix.RemoveTimers()
	}
	if s := x.sessions; s != nil && s.count > 0 {
		q.pendingReleases = append(q.pendingReleases, pendingRelease{states: s.pages})
	}
	if x.topicState != nil {
		q.removePending(x)
	}
	q.setFence(x, 0)
	at, _ := q.entityIndex(x.id)
	q.entities = slices.Delete(q.entities, at, at+1)
	delete(q.byID, x.id)
}

// enableSessions makes an empty entity one with sessions.
func (q *registry) enableSessions(x *entityState) {
	x.sessions = newSessionTable(*q.arena.Generation())
	for i := range x.subs {
		x.subs[i].ix.EnableSessions(x.sessions)
	}
}
