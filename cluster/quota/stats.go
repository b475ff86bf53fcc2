package quota

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/topology"
)

// ShownMax is the largest number of namespaces in Stats; the others are summed up.
const ShownMax = 900

// NamespaceStats holds what one namespace stores, for dashboards and alerts.
type NamespaceStats struct {
	Name string // "" for all namespaces together that are not shown
	// Led is what the partitions hold that this member leads: the sum over all members is the whole.
	Led fsm.Usage
	// QueuesAndTopics and Limits are those of the catalog, and zero if another member leads it. Other settings than the four
	// limits are not set.
	QueuesAndTopics int
	Limits          fsm.NamespaceSettings
	// MemoryBytes and DiskBytes are what all replicas of this member hold.
	MemoryBytes, DiskBytes uint64
}

// Stats holds the statistics of namespaces.
type Stats struct {
	Namespaces []NamespaceStats
	Omitted    int // namespaces that are not shown by name
	// MemoryShare and DiskShare are what each namespace may hold at this member, in bytes, and 0 if that is not limited.
	MemoryShare, DiskShare uint64
}

// Stats returns what namespaces store: up to ShownMax of them by name, those with limits first, then by age, so that the same
// ones are shown every time. leadsCatalog says that this member leads the catalog.
func (m *Monitor) Stats(leadsCatalog bool) Stats {
	s := m.state.Load()
	stats := Stats{MemoryShare: s.memory.share, DiskShare: s.disk.share}
	m.ViewCatalog(func(c *catalog.Machine) {
		list := c.Namespaces("", fsm.NamespacesMax)
		slices.SortFunc(list, func(a, b fsm.Namespace) int {
			if a, b := isLimited(&a.Settings), isLimited(&b.Settings); a != b {
				if a {
					return -1
				}
				return 1
			}
			return cmp.Compare(a.ID, b.ID)
		})
		var rest NamespaceStats
		for i := range list {
			n := &list[i]
			of := NamespaceStats{
				Name: n.Name, Led: s.own.Led[n.ID], MemoryBytes: s.memory.held[n.ID], DiskBytes: s.disk.held[n.ID],
			}
			if leadsCatalog {
				of.QueuesAndTopics = c.QueuesAndTopics(n.ID)
				of.Limits.EntitiesMax, of.Limits.BytesMax = n.Settings.EntitiesMax, n.Settings.BytesMax
				of.Limits.MessagesMax, of.Limits.RulesMax = n.Settings.MessagesMax, n.Settings.RulesMax
			}
			if i < ShownMax {
				stats.Namespaces = append(stats.Namespaces, of)
				continue
			}
			stats.Omitted++
			rest.Led.Add(of.Led)
			rest.QueuesAndTopics += of.QueuesAndTopics
			rest.MemoryBytes += of.MemoryBytes
			rest.DiskBytes += of.DiskBytes
		}
		if stats.Omitted > 0 {
			stats.Namespaces = append(stats.Namespaces, rest)
		}
	})
	return stats
}

func isLimited(s *fsm.NamespaceSettings) bool {
	return s.EntitiesMax != 0 || s.BytesMax|s.MessagesMax|s.RulesMax != 0
}

// Holdings returns what a namespace holds of the memory and the disk of this member, with its shares.
func (m *Monitor) Holdings(id fsm.NamespaceID) []topology.Holding {
	s := m.state.Load()
	return []topology.Holding{
		{Resource: string(Memory), Held: s.memory.held[id], Share: s.memory.share, Largest: m.largest(s, Memory)},
		{Resource: string(Disk), Held: s.disk.held[id], Share: s.disk.share, Largest: m.largest(s, Disk)},
	}
}

// largest returns the name of the namespace that holds the most of a resource above its share at a member, "" for none.
func (m *Monitor) largest(s *state, of Resource) (name string) {
	var most uint64
	var largest fsm.NamespaceID
	for id, at := range s.over {
		for _, e := range at {
			if e.Resource == of && e.Held > e.Share && (e.Held-e.Share > most || e.Held-e.Share == most && id < largest) {
				most, largest = e.Held-e.Share, id
			}
		}
	}
	if largest != 0 {
		m.ViewCatalog(func(c *catalog.Machine) {
			if n, ok := c.NamespaceByID(largest); ok {
				name = n.Name
			}
		})
	}
	return name
}
