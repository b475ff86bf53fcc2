package main

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	figures "github.com/peeklock/peeklock/cmd/metrics"
)

// The pace of looking after memory.
const (
	memoryLookEvery = time.Second
	// memoryCollectEvery is how often the collector is run while sends are refused: else nobody
	// would notice for minutes that what was received has made room.
	memoryCollectEvery = 10 * time.Second
	// memoryBackPercent of its share is what the index must be below before sends are taken again.
	memoryBackPercent = 90
)

// memoryUser is a member as the guard sees it.
type memoryUser interface {
	memoryUsed() int64 // by its gateway, in bytes
	setShortOfMemory(on bool)
}

// memoryGuard has the members of the process refuse sends while the index of what waits in
// their queues takes more than its share. Every replica holds it in memory, so it grows with the
// backlog, and above GOMEMLIMIT the collector would run without end. It is measured and not
// estimated: what the collector found alive, without what the gateways hold.
type memoryGuard struct {
	plan    memoryPlan
	logger  *slog.Logger
	read    func() (live int64, cycles uint64) // of the collector
	collect func()

	mu        sync.Mutex
	users     []memoryUser
	cycles    uint64
	index     int64 // at the end of the last cycle
	short     bool
	collected time.Time
}

func newMemoryGuard(plan memoryPlan, logger *slog.Logger) *memoryGuard {
	return &memoryGuard{plan: plan, logger: logger, read: readHeap, collect: runtime.GC}
}

// guardMemory finds the limit of the process, tells Go of it, and divides it among so many members.
func guardMemory(ctx context.Context, p process, set, ofMachinePercent int64, members int, logger *slog.Logger) *memoryGuard {
	from := memorySource{root: os.DirFS("/"), getenv: p.getenv, goLimit: debug.SetMemoryLimit(-1)}
	limit, source := from.find(set, ofMachinePercent)
	plan := planMemory(limit, source, members)
	limitMemory(ctx, &plan, p.getenv, logger)
	return newMemoryGuard(plan, logger)
}

// guardMemory is that for members which share a process with each other and a machine with people.
func (o *devOptions) guardMemory(ctx context.Context, p process, logger *slog.Logger) (*memoryGuard, error) {
	set, err := parseMemoryLimit(o.memoryLimit)
	if err != nil {
		return nil, err
	}
	return guardMemory(ctx, p, set, memoryOfMachineDevPercent, o.members, logger), nil
}

// readHeap asks the runtime what the last cycle of the collector found.
func readHeap() (live int64, cycles uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return 0, 0
		}
	}
	return int64(samples[0].Value.Uint64()), samples[1].Value.Uint64()
}

// watch adds a member.
func (g *memoryGuard) watch(u memoryUser) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users = append(g.users, u)
	u.setShortOfMemory(g.short)
}

// start looks until the returned function is called.
func (g *memoryGuard) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(memoryLookEvery)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				g.look(ctx, now)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); group.Wait() }
}

// look judges what the last cycle of the collector found.
func (g *memoryGuard) look(ctx context.Context, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if live, cycles := g.read(); cycles != g.cycles {
		g.cycles, g.index = cycles, live
		for _, u := range g.users {
			g.index -= u.memoryUsed()
		}
		g.index = max(0, g.index)
	}
	switch {
	case !g.short && g.index > g.plan.index:
		g.set(true)
		g.logger.ErrorContext(ctx, "memory is nearly used up by messages that wait: the member takes no new messages and entities until there is room; "+
			"receive, purge or delete messages, give it more memory, or move partitions to other members",
			"index_bytes", g.index, "index_bytes_max", g.plan.index, "limit_bytes", g.plan.limit)
		g.collected = now
	case g.short && g.index <= g.plan.index/100*memoryBackPercent:
		g.set(false)
		g.logger.InfoContext(ctx, "there is room in memory again: the member takes new messages", "index_bytes", g.index)
	case g.short && now.Sub(g.collected) >= memoryCollectEvery:
		g.collected = now
		g.collect()
	}
}

// set tells the members. mu is held.
func (g *memoryGuard) set(short bool) {
	g.short = short
	for _, u := range g.users {
		u.setShortOfMemory(short)
	}
}

// figuresOf is what metrics ask, nil when nothing is limited.
func (g *memoryGuard) figuresOf() func() figures.Memory {
	if g == nil {
		return nil
	}
	return g.figures
}

// figures is what metrics show.
func (g *memoryGuard) figures() figures.Memory {
	g.mu.Lock()
	defer g.mu.Unlock()
	return figures.Memory{Limit: g.plan.limit, Index: g.index, IndexMax: g.plan.index}
}

// memoryUsed is what the gateway's connections hold.
func (m *member) memoryUsed() int64 { return m.gateway.Stats().Memory.Used }

func (m *member) setShortOfMemory(on bool) { m.node.SetShortOfMemory(on) }
