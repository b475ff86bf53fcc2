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
	activityReportEvery = 30 * time.Second
	// touchesMax is how many entities are remembered to have been looked at; over it all
	// are forgotten, at the cost of one look and perhaps one report each.
	activityEntitiesMax = 65536
)

// activityLimiter remembers when an entity was last looked at, whether it was reported or not:
// most never delete themselves, and that too is only asked every touchEvery.
type activityLimiter struct {
	mu   sync.Mutex
	last map[fsm.EntityID]time.Time
}

// due says whether an entity is to be looked at now, and notes that it was.
func (t *activityLimiter) due(id fsm.EntityID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.last[id]
	if known && now.Sub(last) < activityReportEvery {
		return false
	}
	if t.last == nil || !known && len(t.last) >= activityEntitiesMax {
		t.last = make(map[fsm.EntityID]time.Time)
	}
	t.last[id] = now
	return true
}

// reportActivity reports a peek or a waiting receive of an entity that deletes itself when it is
// idle: the machine does not see either (docs/requirements.md#e8). It does not block. A report that gets
// lost is made up for by the next.
func (r *Router) reportActivity(entity fsm.Entity) {
	if !r.activity.due(entity.ID, r.now()) {
		return
	}
	// A link holds the entity as it was when it was attached; settings change.
	settings := entity.Settings
	if group := r.transport.localReplica(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) {
			if current, found := catalogOf(m).ByID(entity.ID); found {
				settings = current.Settings
			}
		})
	}
	if settings.WithDefaults().AutoDeleteOnIdle >= fsm.Forever {
		return
	}
	r.client(entity.Partition).submit(fsm.Touch{Entity: entity.ID}, func(fsm.Result) {})
}

// markTouched notes that somebody receives, at most every touchEvery for each receiver, for
// the next tick: a Lock may have ended before that. mu is held.
func (p *partitionClient) markTouched(r *Receiver, now time.Time) {
	if now.Sub(r.lastTouched) < activityReportEvery || len(p.touched) >= activityEntitiesMax {
		return
	}
	r.lastTouched = now
	p.touched = append(p.touched, r.at.Entity)
}

// takeTouched returns the entities that were received from, and those on which somebody
// still waits.
func (p *partitionClient) takeTouched() []fsm.Entity {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for receiver := range p.receivers {
		p.markTouched(receiver, now)
	}
	entities := p.touched
	p.touched = nil
	return entities
}
