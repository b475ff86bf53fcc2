package filter

import "slices"

// ListedMessage is a Message that can tell which user properties it has.
type ListedMessage interface {
	Message
	// EachUser calls visit for every application property, in any order, with names folded
	// or not.
	EachUser(visit func(name string, v Value))
}

// Index finds the correlation filters that match a message without testing the others. Each
// condition, a property and the value it must have, is there once however many filters have
// it. Every filter is filed by one of its conditions; a message can only match filters that are
// filed by a condition that holds, so of its at most 8 + number of application properties
// conditions only the filters filed by them are tested. Which conditions hold is found out
// once for a message, so a test costs little.
//
//	sys.Label = 'order'   ─► holds for this message? filters 3, 9
//	region = 'eu'         ─► holds for this message? filter 4
//	always                ─► filters without conditions
//
// It is not safe for concurrent use. By which condition a filter is filed depends on the order
// of the calls, unless Add is told; what Match finds does not, but the steps it takes do.
type Index struct {
	filters      map[uint64]indexedFilter
	conditionIDs map[equalCondition]uint32 // conditions by what they are
	system       [8]int                    // how many conditions there are of each system property
	users        map[string]int            // and of application properties, by folded name
	conditions   []indexedCondition        // the conditions; free ones have no holders
	free         []uint32
	always       []entry
	message      uint32 // number of the message at hand: conditions that hold have it
	satisfied    []uint32
}

// indexedCondition is a condition in an index.
type indexedCondition struct {
	filters []entry // that are filed by it
	refs    uint32  // filters that have it
	message uint32  // for which it held last
}

// entry is a filter where it is filed: the conditions that it has.
type entry struct {
	conditions []uint32
	id         uint64
}

// indexedFilter says where a filter is: which of its conditions it is filed by, -1 for always.
type indexedFilter struct {
	filter     *Correlation
	conditions []uint32
	by         int
}

// ByFewest lets Add choose the condition by which a filter is filed.
const ByFewest = -2

// What Match takes, in steps: for a filter that is tested, and for each of its conditions.
const (
	stepsTested    = 16
	stepsCondition = 2
)

// NewIndex is an empty index.
func NewIndex() *Index {
	return &Index{filters: map[uint64]indexedFilter{}, conditionIDs: map[equalCondition]uint32{}, users: map[string]int{}}
}

// Len is how many filters there are.
func (x *Index) Len() int { return len(x.filters) }

// Add puts a filter in under an id; one that was there under it goes. It is filed by the
// condition that is told, or for ByFewest by that by which the fewest others are, so that what
// many filters have in common (a type, a region) does not gather them: of 100,000 filters
// with a common label and an own customer each, all but the first lie alone. The result is
// which of its conditions that is, -1 for a filter that has none.
func (x *Index) Add(id uint64, c *Correlation, by int) int {
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
	*at = append(*at, entry{conditions: f.conditions, id: id})
	return f.by
}

// bucket is the list that a filter lies in.
func (x *Index) bucket(f *indexedFilter) *[]entry {
	if f.by < 0 {
		return &x.always
	}
	return &x.conditions[f.conditions[f.by]].filters
}

// acquire finds or makes a condition, for one filter more.
func (x *Index) acquire(h *equalCondition) uint32 {
	n, found := x.conditionIDs[*h]
	if !found {
		if last := len(x.free) - 1; last >= 0 {
			n, x.free = x.free[last], x.free[:last]
		} else {
			n = uint32(len(x.conditions))
			x.conditions = append(x.conditions, indexedCondition{})
		}
		x.conditionIDs[*h] = n
		x.count(h, 1)
	}
	x.conditions[n].refs++
	return n
}

// release is the opposite of hold.
func (x *Index) release(h *equalCondition, n uint32) {
	if x.conditions[n].refs--; x.conditions[n].refs > 0 {
		return
	}
	x.conditions[n] = indexedCondition{}
	x.free = append(x.free, n)
	delete(x.conditionIDs, *h)
	x.count(h, -1)
}

// count keeps the numbers of conditions by property.
func (x *Index) count(h *equalCondition, change int) {
	if h.scope == System {
		x.system[systemIndex(h.name)] += change
		return
	}
	if x.users[h.name] += change; x.users[h.name] == 0 {
		delete(x.users, h.name)
	}
}

// Remove takes a filter out; it does nothing if there is none under the id.
func (x *Index) Remove(id uint64) {
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

// removeEntry takes the entry of the id out, without keeping the order.
func removeEntry(entries []entry, id uint64) []entry {
	at := slices.IndexFunc(entries, func(e entry) bool { return e.id == id })
	last := len(entries) - 1
	if last == 0 {
		return nil
	}
	entries[at] = entries[last]
	entries[last] = entry{}
	return entries[:last]
}

// Match appends the ids of the filters that match to dst, in ascending order, and says how
// many steps that took.
func (x *Index) Match(m ListedMessage, dst []uint64) (ids []uint64, steps uint64) {
	start := len(dst)
	x.findSatisfied(m)
	dst, steps = x.testEntries(x.always, dst, 0)
	for _, n := range x.satisfied {
		dst, steps = x.testEntries(x.conditions[n].filters, dst, steps)
	}
	slices.Sort(dst[start:])
	return dst, steps
}

// findSatisfied finds the conditions that hold for a message, each once.
func (x *Index) findSatisfied(m ListedMessage) {
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
		if v, _ := m.System(name); v.kind != KindNull {
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

// markSatisfied notes that a condition holds, if any filter has it.
func (x *Index) markSatisfied(h equalCondition) {
	n, found := x.conditionIDs[h]
	if !found || isNaN(h.value) || x.conditions[n].message == x.message {
		return
	}
	x.conditions[n].message = x.message
	x.satisfied = append(x.satisfied, n)
}

// testEntries appends the filters all of whose conditions hold.
func (x *Index) testEntries(entries []entry, dst []uint64, steps uint64) ([]uint64, uint64) {
	for i := range entries {
		e := &entries[i]
		steps += stepsTested + stepsCondition*uint64(len(e.conditions))
		if x.allSatisfied(e.conditions) {
			dst = append(dst, e.id)
		}
	}
	return dst, steps
}

func (x *Index) allSatisfied(conditions []uint32) bool {
	for _, n := range conditions {
		if x.conditions[n].message != x.message {
			return false
		}
	}
	return true
}
