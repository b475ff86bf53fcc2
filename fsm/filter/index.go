package filter

import "slices"

// ListedMessage is a Message that can tell which user properties it has.
type ListedMessage interface {
	Message
	// EachUser calls visit for every application property, in any order, with names folded
	// or not.
	EachUser(visit func(name string, v Value))
}

// Index finds the correlation filters that match a message without testing the others.
// Every filter lies in one bucket, that of one of its conditions: a property and its
// value. A message can only match filters in the buckets of the properties and values
// it has, so at most 8 + number of its application properties buckets are looked at, and
// only what lies in them is tested.
//
//	system[Label]   ─ 'order'   ─► filters 3, 9
//	users["region"] ─ 'eu'      ─► filter 4
//	always                      ─► filters without conditions
//
// It is not safe for concurrent use while Add or Remove runs. Which bucket a filter lies
// in depends on the order of the calls; what Match gives does not.
type Index struct {
	filters map[uint64]filed
	system  [8]buckets
	users   map[string]buckets
	always  []entry
}

// buckets are the filters of one property by the value they want. There are no empty ones.
type buckets map[Value][]entry

// entry is a filter in its bucket.
type entry struct {
	filter *Correlation
	id     uint64
}

// filed says where a filter lies: which of its conditions is its bucket, -1 for always.
type filed struct {
	filter *Correlation
	by     int
}

// NewIndex is an empty index.
func NewIndex() *Index {
	return &Index{filters: map[uint64]filed{}, users: map[string]buckets{}}
}

// Len is how many filters there are.
func (x *Index) Len() int { return len(x.filters) }

// Add puts a filter in under an id; one that was there under it goes. Of its conditions
// the one whose bucket has the fewest filters becomes its place, so that what many filters
// have in common (a type, a region) does not gather them. For 100,000 filters with a
// common label and an own customer each, all but the first lie alone.
func (x *Index) Add(id uint64, c *Correlation) {
	x.Remove(id)
	best := -1
	fewest := 0
	for i := range c.conditions {
		n := len(x.bucketsOf(&c.conditions[i])[c.conditions[i].value])
		if best < 0 || n < fewest {
			best, fewest = i, n
		}
	}
	x.filters[id] = filed{filter: c, by: best}
	e := entry{filter: c, id: id}
	if best < 0 {
		x.always = append(x.always, e)
		return
	}
	at := &c.conditions[best]
	b := x.bucketsOf(at)
	if b == nil {
		b = buckets{}
		x.place(at, b)
	}
	b[at.value] = append(b[at.value], e)
}

// bucketsOf is nil if no filter lies under the property.
func (x *Index) bucketsOf(h *held) buckets {
	if h.scope == User {
		return x.users[h.name]
	}
	return x.system[systemIndex(h.name)]
}

// place puts the buckets of a property in their place, or takes them away if b is nil.
func (x *Index) place(h *held, b buckets) {
	switch {
	case h.scope == System:
		x.system[systemIndex(h.name)] = b
	case b == nil:
		delete(x.users, h.name)
	default:
		x.users[h.name] = b
	}
}

// Remove takes a filter out; it does nothing if there is none under the id.
func (x *Index) Remove(id uint64) {
	f, found := x.filters[id]
	if !found {
		return
	}
	delete(x.filters, id)
	if f.by < 0 {
		x.always = without(x.always, id)
		return
	}
	at := &f.filter.conditions[f.by]
	b := x.bucketsOf(at)
	if rest := without(b[at.value], id); len(rest) > 0 {
		b[at.value] = rest
		return
	}
	delete(b, at.value)
	if len(b) == 0 {
		x.place(at, nil)
	}
}

// without takes the entry of the id out, without keeping the order.
func without(entries []entry, id uint64) []entry {
	at := slices.IndexFunc(entries, func(e entry) bool { return e.id == id })
	last := len(entries) - 1
	entries[at] = entries[last]
	entries[last] = entry{}
	return entries[:last]
}

// Match appends the ids of the filters that match to dst, in ascending order.
func (x *Index) Match(m ListedMessage, dst []uint64) []uint64 {
	start := len(dst)
	dst = matching(x.always, m, dst)
	for i, name := range systemNames() {
		if len(x.system[i]) == 0 {
			continue
		}
		if v, _ := m.System(name); v.kind != KindNull {
			dst = matching(x.system[i][unified(v)], m, dst)
		}
	}
	if len(x.users) > 0 {
		m.EachUser(func(name string, v Value) {
			if b := x.users[Fold(name)]; b != nil {
				dst = matching(b[unified(v)], m, dst)
			}
		})
	}
	found := dst[start:]
	slices.Sort(found)
	// A message can have two properties that differ in case only, and so meet a bucket twice.
	return dst[:start+len(slices.Compact(found))]
}

func matching(entries []entry, m Message, dst []uint64) []uint64 {
	for i := range entries {
		if entries[i].filter.Match(m) {
			dst = append(dst, entries[i].id)
		}
	}
	return dst
}
