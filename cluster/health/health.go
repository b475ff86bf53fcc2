package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of health.
const (
	healthInterval      = time.Second
	healthQueryTimeout  = time.Second // for other members to answer
	healthQueriesMax    = 5           // other members asked at a time
	silentHeartbeatsMax = 15          // raft heartbeats (15 s) that the catalog may miss before others are asked
	raftCheckRounds     = 10          // rounds of Run between two checks of raft
	// stuckTimeout is how long the disk or a raft goroutine may be silent before a restart is the better
	// choice. Elections, snapshots and slow syncs take a tenth of it.
	stuckTimeout = 30 * time.Second
)

// Check is the result of one check of a member's health.
type Check struct {
	Name string
	OK   bool   // false makes the member not ready, or not alive
	Text string // state for people, without names of entities and addresses
}

// State is what the checks need to know about the start and the end of a member.
type State struct {
	Failed  bool // it will never be ready
	Closing bool
	Removed bool // from the cluster
	Loaded  bool // the catalog is loaded
	Drained bool
}

// Config is what a Monitor needs.
type Config struct {
	Self     fsm.MemberID
	Replicas *replicas.Set
	State    func() State
	Alive    func() []fsm.MemberID // members that gossip considers alive
	// Status asks another member for the status of its replica of a partition.
	Status    func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error)
	Heartbeat time.Duration // of raft
	DiskSpace func() partition.DiskSpace
	LogStats  func() partition.LogStats
}

// Monitor checks the health of a member. Its methods may be called concurrently, except Run.
type Monitor struct {
	Config

	othersHearLeader atomic.Bool // another member hears the catalog's leader, and this one does not
	// unanswered is the time, as a time.Duration, for which the slowest raft goroutine has not answered;
	// partition is the partition of that goroutine.
	unanswered atomic.Int64
	partition  atomic.Uint32
}

// New returns a Monitor. Run runs it.
func New(config *Config) *Monitor { return &Monitor{Config: *config} }

// Run does the checks that take time, until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		silent := m.LeaderSilence()
		m.othersHearLeader.Store(silent > m.LeaderSilenceMax() && m.OthersHearLeader(ctx))
		if round%raftCheckRounds == 0 || m.unanswered.Load() > 0 {
			m.checkRaft()
		}
	}
}

// LeaderSilence returns the time since this member's replica of the catalog has heard its leader, and 0
// when there is no replica yet.
func (m *Monitor) LeaderSilence() time.Duration {
	group := m.Replicas.Local(fsm.CatalogPartition)
	if group == nil {
		return 0
	}
	status := group.Status()
	if status.IsLeader {
		return 0
	}
	return status.LastContact
}

// LeaderSilenceMax is the silence of the catalog's leader that is too long to be an election.
func (m *Monitor) LeaderSilenceMax() time.Duration { return silentHeartbeatsMax * m.Heartbeat }

// OthersHearLeader asks up to five living members whether they lead the catalog or hear its leader.
func (m *Monitor) OthersHearLeader(ctx context.Context) bool {
	var others []fsm.MemberID
	for _, id := range m.Alive() {
		if id != m.Self {
			others = append(others, id)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healthQueryTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var heard atomic.Bool
	for _, id := range others[:min(len(others), healthQueriesMax)] {
		asking.Go(func() {
			reply, err := m.Status(ctx, id, fsm.CatalogPartition)
			if err == nil && !reply.Halted && (reply.IsLeader || reply.Leader != "") {
				heard.Store(true)
			}
		})
	}
	asking.Wait()
	return heard.Load()
}

// checkRaft finds the raft goroutine that has not answered for the longest time.
func (m *Monitor) checkRaft() {
	var worst time.Duration
	var where fsm.PartitionID
	groups := m.Replicas.All()
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if owed := groups[id].UnansweredFor(); owed > worst {
			worst, where = owed, id
		}
	}
	m.partition.Store(uint32(where))
	m.unanswered.Store(int64(worst))
}

// Readiness reports, check by check, whether clients should be sent to this member now. It does not wait. Ready
// reports that the member has started; Readiness reports what can be lost and restored afterwards.
//
// A member is not ready when other members serve clients better, and only then. That the catalog has no leader,
// that most members are away or that all disks are full makes no member worse than another; if all were taken
// out of service, refusals that clients retry would become refused connections. Therefore silence of the
// catalog's leader counts only when another member hears that leader, and a full disk and a drain do not count:
// such a member routes requests to leaders on other members. A member that was drained, stopped and started
// must become ready, or a rolling restart would wait for it forever.
func (m *Monitor) Readiness() []Check {
	state := m.State()
	membership := Check{Name: "membership", OK: true, Text: "member of the cluster"}
	switch {
	case state.Failed:
		membership.OK, membership.Text = false, "the member cannot start: its log says why"
	case state.Closing:
		membership.OK, membership.Text = false, "the member is leaving"
	case state.Removed:
		membership.OK, membership.Text = false, "the member was removed from the cluster"
	case state.Drained:
		membership.Text = "drained: it leads no partition, and still serves clients"
	}
	return []Check{membership, m.catalogCheck(), m.diskCheck(), m.replicasCheck()}
}

func (m *Monitor) catalogCheck() Check {
	silent := m.LeaderSilence()
	switch {
	case !m.State().Loaded:
		return Check{"catalog", false, "not loaded"}
	case m.othersHearLeader.Load():
		return Check{"catalog", false, fmt.Sprintf("its leader was not heard for %s, and another member hears it", silent.Round(time.Second))}
	case silent > m.LeaderSilenceMax():
		return Check{"catalog", true, fmt.Sprintf("its leader was not heard for %s, nor by others", silent.Round(time.Second))}
	}
	return Check{"catalog", true, "up to date"}
}

func (m *Monitor) diskCheck() Check {
	space := m.DiskSpace()
	switch {
	case space.ReadOnly:
		return Check{"disk", true, "nearly full: read-only, and still serves clients"}
	case space.LowMemory:
		return Check{"disk", true, "has free space, but memory is short: read-only, and still serves clients"}
	}
	return Check{"disk", true, "has free space"}
}

func (m *Monitor) replicasCheck() Check {
	groups := m.Replicas.All()
	halted := 0
	for _, group := range groups {
		if group.Status().Halted != nil {
			halted++
		}
	}
	if halted > 0 {
		return Check{"replicas", true, fmt.Sprintf("%d of %d have stopped for good", halted, len(groups))}
	}
	return Check{"replicas", true, fmt.Sprintf("%d open", len(groups))}
}

// Liveness reports, check by check, whether a restart would help: a write or a raft goroutine has not returned
// for 30 s. Nothing that other members cause counts. A full disk does not count either: raft may have to wait
// for space, and would have to wait again after a restart. It does not wait.
func (m *Monitor) Liveness() []Check { return m.liveness(m.LogStats(), m.DiskSpace()) }

func (m *Monitor) liveness(store partition.LogStats, space partition.DiskSpace) []Check {
	log := Check{"log", true, "writes"}
	if store.Stalled > time.Second {
		log = Check{"log", store.Stalled <= stuckTimeout || space.ReadOnly, fmt.Sprintf("a write has taken %s", store.Stalled.Round(time.Second))}
	}
	raft := Check{"raft", true, "answers"}
	if owed := time.Duration(m.unanswered.Load()); owed > time.Second {
		raft = Check{"raft", owed <= stuckTimeout || space.ReadOnly, fmt.Sprintf("partition %d has not answered for %s", m.partition.Load(), owed.Round(time.Second))}
	}
	return []Check{log, raft}
}
