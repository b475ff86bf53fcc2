package quota

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition"
)

const (
	interval     = time.Second   // between two sums
	soonInterval = interval / 10 // while a namespace is about to exceed its share
	askTimeout   = interval      // for the report of another member
	entitiesPage = 256           // entities read under one lock of a state machine
	// Delay is how long after a namespace has exceeded its share all leaders refuse it, unless members do not answer.
	Delay = interval + askTimeout
)

// SetMemory tells the monitor how much memory the messages of this member may take, and how much they take as measured, in
// bytes. What is measured and belongs to no namespace counts as taken. It reports whether several namespaces hold data here.
func (m *Monitor) SetMemory(most, used int64) (isShared bool) {
	m.memory.Store(&capacity{total: uint64(max(0, most)), free: uint64(max(0, most-used))})
	return len(m.state.Load().memory.held) > 1
}

// Report returns the newest sums of this member.
func (m *Monitor) Report() Report { return m.state.Load().own }

// Usage returns what a namespace holds, in all partitions whose leaders are known, and the number of its queues and topics.
func (m *Monitor) Usage(id fsm.NamespaceID) (stored fsm.Usage, queuesAndTopics int) {
	m.ViewCatalog(func(c *catalog.Machine) { queuesAndTopics = c.QueuesAndTopics(id) })
	return m.state.Load().usage[id], queuesAndTopics
}

// Run adds up once a second, and more often while a namespace is about to exceed its share, until ctx ends: on a fast disk, a
// namespace can store the reserve of a small volume within a second.
func (m *Monitor) Run(ctx context.Context) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			before := m.state.Load()
			m.Update(ctx)
			timer.Reset(pauseAfter(before, m.state.Load()))
		}
	}
}

// pauseAfter returns how long the sums of next may stand, which follow those of before.
func pauseAfter(before, next *state) time.Duration {
	elapsed := next.summed.Sub(before.summed)
	if next.memory.isExceededSoon(&before.memory, elapsed) || next.disk.isExceededSoon(&before.disk, elapsed) {
		return soonInterval
	}
	return interval
}

// isExceededSoon reports whether a namespace exceeds its share within Delay, if it goes on to store as fast as since before.
func (h *holdings) isExceededSoon(before *holdings, elapsed time.Duration) bool {
	for id, held := range h.held {
		grown := float64(held) - float64(before.held[id])
		if h.share > 0 && held <= h.share && grown > 0 && float64(held)+grown*Delay.Seconds()/elapsed.Seconds() > float64(h.share) {
			return true
		}
	}
	return false
}

// Update adds up what this member holds, asks the others, and decides.
func (m *Monitor) Update(ctx context.Context) {
	before := m.state.Load()
	next := m.sum(before)
	asked := *before
	asked.own, asked.memory, asked.disk = next.own, next.memory, next.disk
	m.state.Store(&asked) // for those who ask
	next.others = m.askOthers(ctx)
	next.decide(m.Self)
	m.findReached(ctx, before, next)
	m.state.Store(next)
	m.logChanges(ctx, before, next)
}

// sum adds up the replicas of this member.
func (m *Monitor) sum(before *state) *state {
	report := Report{Led: make(map[fsm.NamespaceID]fsm.Usage)}
	memory, disk := make(map[fsm.NamespaceID]uint64), make(map[fsm.NamespaceID]uint64)
	for id, group := range m.Groups() {
		if id == fsm.CatalogPartition {
			continue
		}
		leads := group.Status().IsLeader
		for namespace, u := range m.sumOf(group) {
			memory[namespace] += u.MemoryBytes
			disk[namespace] += u.DiskBytes
			if leads {
				u.Add(report.Led[namespace])
				report.Led[namespace] = u
			}
		}
	}
	alone := false
	m.ViewCatalog(func(c *catalog.Machine) { alone = len(c.Namespaces("", 2)) == 1 })
	sums := &state{summed: time.Now(), memory: holdings{held: memory}, disk: holdings{held: disk}}
	if c := m.memory.Load(); c != nil && c.total > 0 {
		of := capacity{c.total, min(c.free, c.total-min(c.total, sumOf(memory)))}
		sums.memory.share = of.share(len(memory), alone)
		report.Excess = of.exceeding(Memory, alone, memory, before.was(Memory))
	}
	if free, known := m.Disk(); known {
		of := capacity{total: free + sumOf(disk), free: free}
		sums.disk.share = of.share(len(disk), alone)
		report.Excess = append(report.Excess, of.exceeding(Disk, alone, disk, before.was(Disk))...)
	}
	sums.own = report
	return sums
}

func sumOf(held map[fsm.NamespaceID]uint64) (sum uint64) {
	for _, bytes := range held {
		sum += bytes
	}
	return sum
}

// was returns a function that reports whether a namespace exceeded its share of this member.
func (s *state) was(of Resource) func(fsm.NamespaceID) bool {
	return func(id fsm.NamespaceID) bool {
		for _, e := range s.own.Excess {
			if e.Namespace == id && e.Resource == of {
				return true
			}
		}
		return false
	}
}

// sumOf adds up one replica. Entities that the catalog does not know any more, or not yet, are left out.
func (m *Monitor) sumOf(group *partition.Group) map[fsm.NamespaceID]fsm.Usage {
	type one struct {
		id fsm.EntityID
		u  fsm.Usage
	}
	sums, page := make(map[fsm.NamespaceID]fsm.Usage), make([]one, 0, entitiesPage)
	for after, done := fsm.EntityID(0), false; !done; {
		page, done = page[:0], true
		group.View(func(machine partition.Machine) {
			if queues := raftgroup.Queues(machine); queues != nil {
				after, done = queues.EachUsage(after, entitiesPage, func(id fsm.EntityID, u fsm.Usage) { page = append(page, one{id, u}) })
			}
		})
		for i := range page {
			namespace := m.namespaceOf(page[i].id)
			u := sums[namespace]
			u.Add(page[i].u)
			sums[namespace] = u
		}
	}
	delete(sums, 0)
	return sums
}

// askOthers asks all other members at once. Those that do not answer are left out: their replicas are not counted.
func (m *Monitor) askOthers(ctx context.Context) map[fsm.MemberID]Report {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	reports := make(map[fsm.MemberID]Report)
	for _, member := range m.Others() {
		asking.Go(func() {
			report, err := m.Ask(ctx, member)
			if err != nil || len(report.Led) > fsm.NamespacesMax || len(report.Excess) > 2*fsm.NamespacesMax {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			reports[member] = report
		})
	}
	asking.Wait()
	return reports
}

// decide derives the rest from the reports.
func (s *state) decide(self fsm.MemberID) {
	s.usage, s.over = make(map[fsm.NamespaceID]fsm.Usage), make(map[fsm.NamespaceID]map[fsm.MemberID]Excess)
	add := func(member fsm.MemberID, r *Report) {
		for id, u := range r.Led {
			u.Add(s.usage[id])
			s.usage[id] = u
		}
		for _, e := range r.Excess {
			if s.over[e.Namespace] == nil {
				s.over[e.Namespace] = make(map[fsm.MemberID]Excess)
			}
			s.over[e.Namespace][member] = e
		}
	}
	add(self, &s.own)
	for member, r := range s.others {
		add(member, &r)
	}
}

func (m *Monitor) logChanges(ctx context.Context, before, next *state) {
	for id, at := range next.over {
		if len(before.over[id]) == 0 {
			for _, e := range at {
				m.Logger.WarnContext(ctx, "namespace exceeded its share: it may only receive, settle and delete until it holds less; "+
					"receive, purge or delete its messages and rules, or give members more of the resource",
					"namespace_id", id, "resource", e.Resource, "held_bytes", e.Held, "share_bytes", e.Share)
				break
			}
		}
	}
	for id := range before.over {
		if len(next.over[id]) == 0 {
			m.Logger.InfoContext(ctx, "namespace was accepted again: it holds less than its share", "namespace_id", id)
		}
	}
}

// Refuses returns NamespaceFull for an encoded command that stores more data for a namespace that exceeds its share, or that
// has reached the limit of what the command adds, and OK for every other. While no namespace does, it reads one pointer.
func (m *Monitor) Refuses(id fsm.PartitionID, command []byte) fsm.Code {
	s := m.state.Load()
	if len(s.over) == 0 && len(s.reached) == 0 || !fsm.Grows(command) {
		return fsm.OK
	}
	g := m.growthOf(command)
	if s.reached[g.namespace]&g.adds != 0 {
		return fsm.NamespaceFull
	}
	at := s.over[g.namespace]
	if len(at) == 0 {
		return fsm.OK
	}
	holders := m.Members(id)
	below := 0
	for _, member := range holders {
		if _, over := at[member]; !over {
			below++
		}
	}
	if below >= len(holders)/2+1 {
		return fsm.OK // a quorum has space
	}
	return fsm.NamespaceFull
}

// Reason returns, for clients, why a namespace is refused and what to do, "" if it is not.
func (m *Monitor) Reason(id fsm.NamespaceID) string {
	most := Excess{}
	for _, e := range m.state.Load().over[id] {
		if e.Held >= most.Held {
			most = e
		}
	}
	reason := m.limitReasons(id)
	if most.Held == 0 {
		return reason
	}
	return strings.TrimSpace(fmt.Sprintf("The namespace holds %d bytes of the %s of a member, more than its share of %d. Receive, purge or delete some of its messages and rules. %s",
		most.Held, most.Resource, most.Share, reason))
}
