package fsm

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm/filter"
)

func (q *Queues) entityIndex(id EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.entities, id, func(x *entityState, id EntityID) int { return cmp.Compare(x.id, id) })
}

// subqueueAt returns the sub-queue at an address, nil if there is none.
func (q *Queues) subqueueAt(a Address) *subqueue {
	if x := q.byID[a.Entity]; x != nil && a.valid() {
		return &x.subs[a.Sub]
	}
	return nil
}

// putEntity creates an entity or changes its settings. Existing locks and expiry times stay.
func (q *Queues) putEntity(c PutEntity) Result {
	if code := c.check(); code != OK {
		return Result{Code: code}
	}
	settings := c.Settings.WithDefaults()
	x := q.byID[c.Entity]
	switch {
	case x == nil:
		var code Code
		if x, code = q.createEntity(&c); code != OK {
			return Result{Code: code}
		}
		if x.detectsDuplicates(&settings) {
			x.window = &duplicateWindow{generation: q.arena.generation}
		}
		if settings.RequiresSession {
			q.enableSessions(x)
		}
	case c.Version <= x.version:
		return Result{}
	case !x.settings.canChangeTo(&settings) || x.kind != c.Kind || x.kind == SubscriptionEntity && x.topic.id != c.Topic:
		return Result{Code: InvalidArgument}
	case x.window != nil:
		x.window.raiseFloor(q.times.Wall, x.settings.DuplicateWindow)
	}
	old := x.settings
	x.version, x.settings, x.lastActivity = c.Version, q.settings.share(&settings), q.times.Serving
	q.notifyRedirected(x, old)
	q.scheduleIdle(x)
	q.scheduleSweep(x)
	q.removeStaleTimers(&x.subs[MainQueue])
	return Result{}
}

// settingsSharedMax is the number of different settings that are remembered to be shared.
const settingsSharedMax = 256

// sharedSettings holds settings of entities, for look-ups only: entities with equal settings share one copy, which the
// processor finds in its cache. Ten thousand queues rarely have more than a few different settings.
type sharedSettings map[EntitySettings]*EntitySettings

// share returns the copy of settings that entities share.
func (s sharedSettings) share(settings *EntitySettings) *EntitySettings {
	if known := s[*settings]; known != nil {
		return known
	}
	if len(s) == settingsSharedMax {
		clear(s) // entities keep theirs
	}
	s[*settings] = settings
	return settings
}

// createEntity creates an empty entity.
func (q *Queues) createEntity(c *PutEntity) (*entityState, Code) {
	topic, first := q.byID[c.Topic], c.Rule
	if first == nil {
		first = defaultRule()
	}
	switch _, gone := q.findTombstone(c.Entity); {
	case gone:
		return nil, EntityNotFound
	case c.Kind != SubscriptionEntity:
		return q.addEntity(c.Entity, c.Kind), OK
	case topic == nil || topic.kind != TopicEntity:
		return nil, EntityNotFound
	}
	ready, _ := parseRule(first) // was checked
	if topic.topicState.isFull(first.Filter.Kind, ready.size, nil) {
		return nil, QuotaExceeded
	}
	x := q.addEntity(c.Entity, c.Kind)
	q.subscribe(x, topic, &rule{Rule: *first, parsed: ready, subscription: x, indexedBy: filter.ByFewest})
	return x, OK
}

// detectsDuplicates reports whether an entity with these settings detects duplicates. The topic of
// a subscription does that.
func (x *entityState) detectsDuplicates(s *EntitySettings) bool {
	return s.RequiresDuplicateDetection && x.kind != SubscriptionEntity
}

// addEntity adds an empty entity; a subscription has no topic yet.
func (q *Queues) addEntity(id EntityID, kind EntityKind) *entityState {
	x := &entityState{id: id, kind: kind}
	if kind == TopicEntity {
		x.topicState = newTopicState()
	}
	for i := range x.subs {
		sub := &x.subs[i]
		*sub = subqueue{
			entity:  x,
			address: Address{Entity: id, Sub: SubQueue(i)},
			ix:      index{arena: &q.arena, generation: q.arena.generation},
		}
		for line := range sub.timers {
			sub.timers[line] = timers{sub: sub, heapIndex: -1}
		}
	}
	i, _ := q.entityIndex(id)
	q.entities = slices.Insert(q.entities, i, x)
	q.byID[id] = x
	return x
}

// dropEntity deletes an entity, or the tombstone of one that was deleted automatically.
func (q *Queues) dropEntity(id EntityID) {
	q.removeTombstones(id)
	if x := q.byID[id]; x != nil {
		q.deleteEntity(x)
	}
}

// deleteEntity deletes an entity, a topic with its subscriptions. Bodies are released in steps,
// except those that a subscription shares with a topic that stays.
func (q *Queues) deleteEntity(x *entityState) {
	switch x.kind {
	case TopicEntity:
		for _, y := range x.topicState.subscriptions {
			q.removeEntity(y)
		}
	case SubscriptionEntity:
		q.unsubscribe(x)
	case QueueEntity:
	}
	q.removeEntity(x)
	q.releasePending(releasesPerApply)
}

func (q *Queues) removeEntity(x *entityState) {
	for i := range x.subs {
		sub := &x.subs[i]
		if len(sub.ix.entries) > 0 {
			q.pendingReleases = append(q.pendingReleases, pendingRelease{entries: sub.ix.entries})
		}
		sub.dropped = true
		for line := range q.timers {
			q.timers[line].remove(&sub.timers[line])
		}
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

// releaseBodies releases the bodies of a message.
func (q *Queues) releaseBodies(body, patch Ref) {
	q.bodies.Release(body)
	if patch != (Ref{}) {
		q.bodies.Release(patch)
	}
}

// deleteMessage deletes a message. The caller ends its lock.
func (q *Queues) deleteMessage(sub *subqueue, at cursor, rec *record) {
	if patch := sub.ix.patch(at); rec.flags&shared == 0 {
		q.releaseBodies(rec.body, patch)
	} else {
		q.releaseCopy(sub.entity.topic, rec.originalNumber())
		if patch != (Ref{}) {
			q.bodies.Release(patch)
		}
	}
	sub.ix.remove(at)
}
