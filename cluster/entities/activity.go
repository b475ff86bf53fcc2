package entities

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/fsm"
)

// activityLimiter remembers when the activity of an entity was last checked, whether it was reported
// or not: most entities are never deleted when idle, and the look-up of that setting is limited, too.
type activityLimiter struct {
	mu   sync.Mutex
	last map[fsm.EntityID]time.Time
}

// due reports whether to check an entity now, and records the check.
func (t *activityLimiter) due(id fsm.EntityID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.last[id]
	if known && now.Sub(last) < client.ActivityEvery {
		return false
	}
	if t.last == nil || !known && len(t.last) >= client.ActivityEntitiesMax {
		t.last = make(map[fsm.EntityID]time.Time)
	}
	t.last[id] = now
	return true
}

// LastActivity returns when the activity of an entity was last checked on this member, or zero.
func (r *Manager) LastActivity(id fsm.EntityID) time.Time {
	r.activity.mu.Lock()
	defer r.activity.mu.Unlock()
	return r.activity.last[id]
}

// ReportActivity reports a peek or a waiting receive of an entity that deletes itself when it is
// idle: the state machine sees neither (docs/requirements.md#e8). It does not block. A lost report
// does not matter, because the next one follows.
func (r *Manager) ReportActivity(entity fsm.Entity) {
	if !r.activity.due(entity.ID, r.now()) {
		return
	}
	// A link has the settings from the time when it was attached.
	settings := entity.Settings
	if current, found := r.KnownEntity(entity.ID); found {
		settings = current.Settings
	}
	if settings.WithDefaults().AutoDeleteOnIdle >= fsm.Forever {
		return
	}
	r.Client(entity.Partition).Submit(fsm.Touch{Entity: entity.ID}, func(fsm.Result) {})
}
