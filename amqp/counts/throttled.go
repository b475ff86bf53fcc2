package counts

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of the counts of throttled requests.
const (
	throttledMax  = 1000      // entities with a count of their own
	throttledKept = time.Hour // after its last throttled request, another entity may take its place
)

// Throttled counts the requests for an entity that this member refused with server-busy since it was opened.
type Throttled struct {
	Namespace fsm.NamespaceID
	Kind      fsm.EntityKind
	Name      string // of a subscription its path; "" for all entities together that have no count of their own
	Requests  uint64
}

// Throttles counts throttled requests by entity. It is safe for concurrent use; the zero value is ready.
type Throttles struct {
	mu     sync.Mutex
	counts map[Throttled]*throttledCount // by entity: Requests is 0
	others uint64
}

type throttledCount struct {
	requests uint64
	last     time.Time
}

// Add counts requests for an entity. Refusals are written and logged, so they are rare enough for a lock.
func (t *Throttles) Add(e *fsm.Entity, requests int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Throttled{Namespace: e.Namespace, Kind: e.Kind, Name: e.Name}
	count := t.counts[key]
	if count == nil {
		if len(t.counts) >= throttledMax && !t.makeRoom(now) {
			t.others += uint64(requests)
			return
		}
		if t.counts == nil {
			t.counts = make(map[Throttled]*throttledCount)
		}
		count = new(throttledCount)
		t.counts[key] = count
	}
	count.requests += uint64(requests)
	count.last = now
}

// makeRoom drops the counts that have been still for throttledKept. mu is held.
func (t *Throttles) makeRoom(now time.Time) bool {
	for key, count := range t.counts {
		if now.Sub(count.last) >= throttledKept {
			delete(t.counts, key)
		}
	}
	return len(t.counts) < throttledMax
}

// List returns the counts in any order.
func (t *Throttles) List() []Throttled {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Throttled, 0, len(t.counts)+1)
	for key, count := range t.counts {
		key.Requests = count.requests
		list = append(list, key)
	}
	if t.others > 0 {
		list = append(list, Throttled{Requests: t.others})
	}
	return list
}
