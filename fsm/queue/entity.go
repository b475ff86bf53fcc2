package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/index"
)

func (q *Machine) entityIndex(id fsm.EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.entities, id, func(x *entityState, id fsm.EntityID) int { return cmp.Compare(x.id, id) })
}

// subqueueAt returns the sub-queue at an address, nil if there is none.
func (q *Machine) subqueueAt(a fsm.Address) *subqueue {
	if x := q.byID[a.Entity]; x != nil && a.Valid() {
		return &x.subs[a.Sub]
	}
	return nil
}

// putEntity creates an entity or changes its settings. Existing locks and expiry times stay.
func (q *Machine) putEntity(c fsm.PutEntity) fsm.Result {
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

// settingsSharedMax is the number of different settings that are remembered to be shared.
const settingsSharedMax = 256

// sharedSettings holds settings of entities, for look-ups only: entities with equal settings share one copy, which the
// processor finds in its cache. Ten thousand queues rarely have more than a few different settings.
type sharedSettings map[fsm.EntitySettings]*fsm.EntitySettings

// share returns the copy of settings that entities share.
func (s sharedSettings) share(settings *fsm.EntitySettings) *fsm.EntitySettings {
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
func (q *Machine) createEntity(c *fsm.PutEntity) (*entityState, fsm.Code) {
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

// detectsDuplicates reports whether an entity with these settings detects duplicates. The topic of
// a subscription does that.
func (x *entityState) detectsDuplicates(s *fsm.EntitySettings) bool {
	return s.RequiresDuplicateDetection && x.kind != fsm.SubscriptionEntity
}

// addEntity adds an empty entity; a subscription has no topic yet.
func (q *Machine) addEntity(id fsm.EntityID, kind fsm.EntityKind) *entityState {
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

// IsCurrent implements [index.Owner] for the timers of the whole entity and those of its sessions.
func (x *entityState) IsCurrent(a index.Timer) bool {
	switch a.Kind {
	case index.SweepTimer:
		return x.sweepAt == a.At
	case index.IdleTimer:
		return x.idleAt == a.At
	case index.SessionTimer:
		return x.sessions.isCurrent(a)
	case index.ChunkTimer, index.LockTimer:
	}
	return false
}

// dropEntity deletes an entity, or the tombstone of one that was deleted automatically.
func (q *Machine) dropEntity(id fsm.EntityID) {
	q.removeTombstones(id)
	if x := q.byID[id]; x != nil {
		q.deleteEntity(x)
	}
}

// deleteEntity deletes an entity, a topic with its subscriptions. Bodies are released in steps,
// except those that a subscription shares with a topic that stays.
func (q *Machine) deleteEntity(x *entityState) {
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

func (q *Machine) removeEntity(x *entityState) {
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

// releaseBodies releases the bodies of a message.
func (q *Machine) releaseBodies(body, patch fsm.Ref) {
	q.bodies.Release(body)
	if patch != (fsm.Ref{}) {
		q.bodies.Release(patch)
	}
}

// deleteMessage deletes a message. The caller ends its lock.
func (q *Machine) deleteMessage(sub *subqueue, at index.Cursor, rec *index.Record) {
	if patch := sub.ix.Patch(at); !rec.IsCopy() {
		q.releaseBodies(rec.Body(), patch)
	} else {
		q.releaseCopy(sub.entity.topic, rec.OriginalNumber())
		if patch != (fsm.Ref{}) {
			q.bodies.Release(patch)
		}
	}
	sub.ix.Remove(at)
}
