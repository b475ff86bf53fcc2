package quota

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition"
)

// Report is what a member tells the others.
type Report struct {
	Led    map[fsm.NamespaceID]fsm.Usage `json:"led"`    // of the partitions that it leads
	Excess []Excess                      `json:"excess"` // of the partitions that it holds
}

// Config is what a Monitor needs.
type Config struct {
	Self fsm.MemberID
	// Groups returns the open replicas of this member.
	Groups func() map[fsm.PartitionID]*partition.Group
	// Others returns the other living members, Ask asks one of them.
	Others func() []fsm.MemberID
	Ask    func(ctx context.Context, member fsm.MemberID) (Report, error)
	// ViewCatalog calls a function with this member's replica of the catalog, if it is open.
	ViewCatalog func(func(*catalog.Machine))
	// Members returns the members that hold replicas of a partition.
	Members func(fsm.PartitionID) []fsm.MemberID
	// Disk returns the free bytes of the member's disk that data may take.
	Disk   func() (free uint64, known bool)
	Logger *slog.Logger
}

// Monitor adds up what namespaces hold, and says which ones are refused.
type Monitor struct {
	Config

	memory atomic.Pointer[capacity] // nil: no limit
	state  atomic.Pointer[state]

	namespaces sync.Map     // fsm.NamespaceID by fsm.EntityID; entities never change theirs
	known      atomic.Int64 // about so many of them
}

// state is what the newest sums say. It is replaced and never changed.
type state struct {
	summed time.Time // when the sums were made
	own    Report
	// memory and disk are what namespaces hold at this member.
	memory, disk holdings
	others       map[fsm.MemberID]Report
	usage        map[fsm.NamespaceID]fsm.Usage // of all members' Led
	// over are the members at which a namespace exceeds its share, with the excess.
	over map[fsm.NamespaceID]map[fsm.MemberID]Excess
	// reached are the namespaces that have reached limits of their settings, and warned those about which that was logged.
	reached, warned map[fsm.NamespaceID]limits
}

// holdings is what namespaces hold of a resource of this member, in bytes, and what each may hold, 0 if that is not limited.
type holdings struct {
	held  map[fsm.NamespaceID]uint64
	share uint64
}

// limits is a set of those limits in the settings of a namespace that leaders enforce by the sums. The catalog enforces
// EntitiesMax itself.
type limits uint8

const (
	bytesLimit limits = 1 << iota
	messagesLimit
	rulesLimit
)

// New returns a Monitor. Run runs it.
func New(config *Config) *Monitor {
	m := &Monitor{Config: *config}
	m.state.Store(&state{})
	return m
}

// namespaceOf returns the namespace of an entity or shard, 0 if it is not known.
func (m *Monitor) namespaceOf(id fsm.EntityID) fsm.NamespaceID {
	if namespace, known := m.namespaces.Load(id); known {
		return namespace.(fsm.NamespaceID) //nolint:forcetypeassert // all are
	}
	namespace := m.find(id).Namespace
	if namespace != 0 {
		if m.known.Add(1) >= 4*fsm.EntitiesMax { // most were deleted
			m.namespaces.Clear()
			m.known.Store(0)
		}
		m.namespaces.Store(id, namespace)
	}
	return namespace
}

// find looks an entity up in the catalog. Its Namespace is 0 if it is not there.
func (m *Monitor) find(id fsm.EntityID) (e fsm.Entity) {
	m.ViewCatalog(func(c *catalog.Machine) { e, _ = c.ByID(id) })
	return e
}
