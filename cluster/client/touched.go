package client

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const (
	// ActivityEvery is the minimum time between two reports of activity that leaves no entry in
	// the log, per entity: a tenth of the shortest AutoDeleteOnIdle, so that nine may be lost.
	ActivityEvery = 30 * time.Second
	// ActivityEntitiesMax bounds the entities whose activity is remembered.
	ActivityEntitiesMax = 65536
)

// markTouched records the activity of a receiver for the next tick, at most once per
// ActivityEvery: the Lock may have ended by then. mu is held.
func (p *Client) markTouched(r *Receiver, now time.Time) {
	if now.Sub(r.lastTouched) < ActivityEvery || len(p.touched) >= ActivityEntitiesMax {
		return
	}
	r.lastTouched = now
	p.touched = append(p.touched, r.at.Entity)
}

// takeTouched returns the entities from which messages were received, and those that receivers wait
// for.
func (p *Client) takeTouched() []fsm.Entity {
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
