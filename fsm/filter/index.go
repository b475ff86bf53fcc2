package filter

import "slices"

// ListedMessage is a Message that can list its user properties.
type ListedMessage interface {
	Message
	// EachUser calls visit for every application property, in any order, with names folded
	// or not.
	EachUser(visit func(name string, v Value))
}

// Index finds the correlation filters that match a message without testing the others. Each
// condition, a property and the value it must have, is stored once however many filters have it.
// Every filter is indexed by one of its conditions; a message can only match filters that are
// indexed by a condition that holds, so for its at most 8 + number of application properties
// conditions only the filters indexed by them are tested. The conditions that hold are found once
// for a message, so a test is cheap.
//
//	sys.Label = 'order'   ─► holds for this message? filters 3, 9
//	region = 'eu'         ─► holds for this message? filter 4
//	always                ─► filters without conditions
//
// An Index is not safe for concurrent use. The condition by which a filter is indexed depends on
// the order of the calls, unless Add is told; which filters match does not depend on it, but their
// order and the steps do.
//
// V is what the caller stores with a filter, so that it need not look up the ids that match.
type Index[V any] struct {
	filters      map[uint64]indexedFilter
	conditionIDs map[equalCondition]uint32 // numbers of the conditions
	system       [8]int                    // conditions of each system property
	users        map[string]int            // conditions of each application property, by folded name
	conditions   []indexedCondition[V]     // by number; free ones have no refs
	free         []uint32
	always       []entry[V]
	message      uint32 // number of the current message: conditions that hold have it
	satisfied    []uint32
}

// indexedCondition is a condition in an index.
type indexedCondition[V any] struct {
	filters []entry[V] // indexed by it
	refs    uint32     // number of filters that have it
	message uint32     // the last message for which it held
}

// entry is a filter in the list of the condition by which it is indexed.
type entry[V any] struct {
	conditions []uint32
	Indexed[V]
}

// Indexed is a filter in an Index: its id, and the value that was stored with it.
type Indexed[V any] struct {
	ID    uint64
	Value V
}

// indexedFilter is a filter and the condition by which it is indexed, -1 for none.
type indexedFilter struct {
	filter     *Correlation
	conditions []uint32
	by         int
}

// ByFewest lets Add choose the condition by which a filter is indexed.
const ByFewest = -2

// Steps of Match: for a filter that is tested, and for each of its conditions.
const (
	stepsTested    = 16
	stepsCondition = 2
)

// NewIndex returns an empty index.
func NewIndex[V any]() *Index[V] {
	return &Index[V]{filters: map[uint64]indexedFilter{}, conditionIDs: map[equalCondition]uint32{}, users: map[string]int{}}
}

// Len returns the number of filters.
func (x *Index[V]) Len() int { return len(x.filters) }

// Has reports whether there is a filter with the id.
func (x *Index[V]) Has(id uint64) bool {
	_, found := x.filters[id]
	return found
}

// Add adds a filter and a value under an id; it replaces the one with that id. The filter is indexed by the
// condition by, or for ByFewest by the one by which the fewest others are, so that common
// conditions (a type, a region) do not collect many filters: of 100,000 filters with a common label
// and a customer of their own each, all but the first are alone in their list. Add returns the
// number of the condition, -1 for a filter without conditions.
func (x *Index[V]) Add(id uint64, c *Correlation, by int, value V) int {
	x.Remove(id)
	f := indexedFilter{filter: c, conditions: make([]uint32, len(c.conditions)), by: by}
	for i := range c.conditions {
		f.conditions[i] = x.acquire(&c.conditions[i])
	}
	if by == ByFewest {
		f.by = -1
		for i, n := range f.conditions {
			if f.by < 0 || len(x.conditions[n].filters) < len(x.conditions[f.conditions[f.by]].filters) {
				f.by = i
			}
		}
	}
	x.filters[id] = f
	at := x.bucket(&f)
	*at = append(*at, entry[V]{f.conditions, Indexed[V]{id, value}})
	return f.by
}

// bucket returns the list that contains a filter.
func (x *Index[V]) bucket(f *indexedFilter) *[]entry[V] {
	if f.by < 0 {
		return &x.always
	}
	return &x.conditions[f.conditions[f.by]].filters
}

// acquire finds or adds a condition, and counts one more reference.
func (x *Index[V]) acquire(h *equalCondition) uint32 {
	n, found := x.conditionIDs[*h]
	if !found {
		if last := len(x.free) - 1; last >= 0 {
			n, x.free = x.free[last], x.free[:last]
		} else {
			n = uint32(len(x.conditions))
			x.conditions = append(x.conditions, indexedCondition[V]{})
		}
		x.conditionIDs[*h] = n
		x.count(h, 1)
	}
	x.conditions[n].refs++
	return n
}

// release is the opposite of acquire.
func (x *Index[V]) release(h *equalCondition, n uint32) {
	if x.conditions[n].refs--; x.conditions[n].refs > 0 {
		return
	}
	x.conditions[n] = indexedCondition[V]{}
	x.free = append(x.free, n)
	delete(x.conditionIDs, *h)
	x.count(h, -1)
}

// count updates the numbers of conditions by property.
func (x *Index[V]) count(h *equalCondition, change int) {
	if h.scope == System {
		x.system[systemIndex(h.name)] += change
		return
	}
	if x.users[h.name] += change; x.users[h.name] == 0 {
		delete(x.users, h.name)
	}
}

// Remove removes a filter; it does nothing if there is none with the id.
func (x *Index[V]) Remove(id uint64) {
	f, found := x.filters[id]
	if !found {
		return
	}
	delete(x.filters, id)
	at := x.bucket(&f)
	*at = removeEntry(*at, id)
	for i, n := range f.conditions {
		x.release(&f.filter.conditions[i], n)
	}
}

// removeEntry removes the entry of the id, without keeping the order.
func removeEntry[V any](entries []entry[V], id uint64) []entry[V] {
	at := slices.IndexFunc(entries, func(e entry[V]) bool { return e.ID == id })
	last := len(entries) - 1
	if last == 0 {
		return nil
	}
	entries[at] = entries[last]
	entries[last] = entry[V]{}
	return entries[:last]
}

// Match appends the filters that match to dst, in an order that depends on the order of the calls of Add
// and Remove, and returns the steps taken.
func (x *Index[V]) Match(m ListedMessage, dst []Indexed[V]) (matches []Indexed[V], steps uint64) {
	x.findSatisfied(m)
	dst, steps = x.testEntries(x.always, dst, 0)
	for _, n := range x.satisfied {
		dst, steps = x.testEntries(x.conditions[n].filters, dst, steps)
	}
	return dst, steps
}

// findSatisfied finds the conditions that hold for a message, each once.
func (x *Index[V]) findSatisfied(m ListedMessage) {
	if x.message++; x.message == 0 { // all numbers were used
		for i := range x.conditions {
			x.conditions[i].message = 0
		}
		x.message = 1
	}
	x.satisfied = x.satisfied[:0]
	for i, name := range systemNames() {
		if x.system[i] == 0 {
			continue
		}
		if v := m.System(name); v.kind != KindNull {
			x.markSatisfied(equalCondition{scope: System, name: name, value: normalized(v)})
		}
	}
	if len(x.users) > 0 {
		m.EachUser(func(name string, v Value) {
			folded := Fold(name)
			if x.users[folded] == 0 {
				return
			}
			// Of properties that differ in case only, one counts.
			if v, _ := m.User(folded); v.kind != KindNull {
				x.markSatisfied(equalCondition{scope: User, name: folded, value: normalized(v)})
			}
		})
	}
}

// markSatisfied records that a condition holds, if any filter has it.
func (x *Index[V]) markSatisfied(h equalCondition) {
	n, found := x.conditionIDs[h]
	if !found || isNaN(h.value) || x.conditions[n].message == x.message {
		return
	}
	x.conditions[n].message = x.message
	x.satisfied = append(x.satisfied, n)
}

// testEntries appends the filters all of whose conditions hold.
func (x *Index[V]) testEntries(entries []entry[V], dst []Indexed[V], steps uint64) ([]Indexed[V], uint64) {
	for i := range entries {
		e := &entries[i]
		steps += stepsTested + stepsCondition*uint64(len(e.conditions))
		if x.allSatisfied(e.conditions) {
			dst = append(dst, e.Indexed)
		}
	}
	return dst, steps
}

func (x *Index[V]) allSatisfied(conditions []uint32) bool {
	for _, n := range conditions {
		if x.conditions[n].message != x.message {
			return false
		}
	}
	return true
}
