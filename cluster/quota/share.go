package quota

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

const (
	// defaultSharePercent is the share of the default namespace while there is no other.
	defaultSharePercent = 90
	// guaranteeDivisor determines what a namespace may hold however little is free: the capacity, divided by it and by the
	// number of namespaces. All together can so exceed the capacity by a quarter.
	guaranteeDivisor = 4
	// resumePercent of its share is what a refused namespace may hold to be accepted again, so that it does not alternate.
	resumePercent = 90
)

// Resource is what a namespace holds too much of.
type Resource string

// The resources of a member.
const (
	Memory Resource = "memory"
	Disk   Resource = "disk"
)

// Excess says that a namespace holds more than its share of a member.
type Excess struct {
	Namespace fsm.NamespaceID `json:"namespace"`
	Resource  Resource        `json:"resource"`
	Held      uint64          `json:"heldBytes"`
	Share     uint64          `json:"shareBytes"`
}

// capacity is how much of a resource namespaces can hold at a member, in bytes, and how much of that is free.
type capacity struct{ total, free uint64 }

// share returns how much each of n namespaces may hold: as much as is free, so that one alone gets half, two get a third
// each, and the next one finds as much; at least the guarantee.
func (c capacity) share(n int, alone bool) uint64 {
	if alone {
		return c.total / 100 * defaultSharePercent
	}
	return max(c.free, c.total/uint64(guaranteeDivisor*max(1, n)))
}

// exceeding returns the namespaces that hold more than their share, most first. alone says that there is only the default
// namespace. was reports which ones were over it before.
func (c capacity) exceeding(of Resource, alone bool, held map[fsm.NamespaceID]uint64, was func(fsm.NamespaceID) bool) (list []Excess) {
	share := c.share(len(held), alone)
	for id, bytes := range held {
		limit := share
		if was(id) {
			limit = share / 100 * resumePercent
		}
		if bytes > limit {
			list = append(list, Excess{Namespace: id, Resource: of, Held: bytes, Share: share})
		}
	}
	slices.SortFunc(list, func(a, b Excess) int {
		if a.Held != b.Held {
			return cmp.Compare(b.Held, a.Held)
		}
		return cmp.Compare(a.Namespace, b.Namespace)
	})
	return list
}
