package cluster

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	// touchEvery is how often activity that leaves no trace in a machine is reported, per
	// entity: a tenth of the shortest AutoDeleteOnIdle, so that nine reports may be lost.
	touchEvery = 30 * time.Second
	// touchesMax is how many entities are remembered to have been looked at; over it all
	// are forgotten, at the cost of one look and perhaps one report each.
	touchesMax = 65536
)

// touches remembers when an entity was last looked at, whether it was reported or not:
// most never delete themselves, and that too is only asked every touchEvery.
type touches struct {
	mu   sync.Mutex
	last map[fsm.EntityID]time.Time
}

// due says whether an entity is to be looked at now, and notes that it was.
func (t *touches) due(id fsm.EntityID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.last[id]
	if known && now.Sub(last) < touchEvery {
		return false
	}
	if t.last == nil || !known && len(t.last) >= touchesMax {
		t.last = make(map[fsm.EntityID]time.Time)
	}
	t.last[id] = now
	return true
}

// touch reports a peek or a waiting receive of an entity that deletes itself when it is
// idle: the machine does not see either (docs/requirements.md#e8). It does not block. A report that gets
// lost is made up for by the next.
func (r *Router) touch(entity fsm.Entity) {
	if !r.touches.due(entity.ID, r.now()) {
		return
	}
	// A link holds the entity as it was when it was attached; settings change.
	settings := entity.Settings
	if group := r.ways.local(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) {
			if current, found := catalogOf(m).ByID(entity.ID); found {
				settings = current.Settings
			}
		})
	}
	if settings.WithDefaults().AutoDeleteOnIdle >= fsm.Forever {
		return
	}
	r.line(entity.Partition).submit(fsm.Touch{Entity: entity.ID}, func(fsm.Result) {})
}

// stir notes that somebody receives, at most every touchEvery for each receiver, for
// the next tick: a Lock may have ended before that. mu is held.
func (l *line) stir(r *Receiver, now time.Time) {
	if now.Sub(r.active) < touchEvery || len(l.stirred) >= touchesMax {
		return
	}
	r.active = now
	l.stirred = append(l.stirred, r.at.Entity)
}

// takeStirred returns the entities that were received from, and those on which somebody
// still waits.
func (l *line) takeStirred() []fsm.Entity {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for receiver := range l.lanes {
		l.stir(receiver, now)
	}
	entities := l.stirred
	l.stirred = nil
	return entities
}
