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

	"github.com/peeklock/peeklock/amqp/account"
	membermetrics "github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// Intervals and thresholds of the guard.
const (
	memoryCheckEvery = time.Second
	// memorySharedPercent of its share is what the index may take before all sends are refused, if namespaces share it: up to
	// then only those are refused that hold more than their share (package quota).
	memorySharedPercent = 125
	// memoryCollectEvery is the interval at which the guard runs the garbage collector while sends are refused.
	// Without it, minutes could pass before a cycle shows that receiving has freed memory.
	memoryCollectEvery = 10 * time.Second
	// Sends are accepted again when the index is below memoryResumePercent of its share.
	memoryResumePercent = 90
	// heapGrowthBytesMin is how much the heap grows between two cycles of the garbage collector at least: with GOGC=100
	// a member without a backlog, whose live heap is small, would collect many times a second. With a small limit it is
	// heapGrowthPercentMax of the limit.
	heapGrowthBytesMin   = 64 << 20
	heapGrowthPercentMax = 10
	gcPercentStep        = 50 // the collector is paced anew only for a step
)

// memoryConsumer is the part of a member that the guard uses.
type memoryConsumer interface {
	memoryUsed() int64 // by the gateway of the member, in bytes
	setShortOfMemory(on bool)
	// setIndex tells how much memory the index of the member may take, and how much it takes. It reports whether several
	// namespaces share it, so that those that hold most are refused first.
	setIndex(most, used int64) (isShared bool)
}

// memoryGuard makes the members of the process refuse sends while the index of waiting messages takes more than
// its share. Every replica holds its index in memory, so the index grows with the backlog, and near GOMEMLIMIT the
// garbage collector would run all the time. The index is measured, not estimated: it is the live heap after the
// last cycle of the collector, less what the gateways hold for requests over AMQP and HTTP. Since they may have released it
// since that cycle, a measurement that would refuse sends is repeated with a new cycle. If namespaces share the index, those
// that hold more than their share are refused first, and all only when that does not help.
type memoryGuard struct {
	plan    memoryPlan
	logger  *slog.Logger
	read    func() (live int64, cycles uint64) // from the garbage collector
	collect func()
	pace    func(percent int) // sets GOGC; nil: the environment has set it

	mu        sync.Mutex
	consumers []memoryConsumer
	cycles    uint64
	index     int64 // at the end of the last cycle
	overLimit bool
	collected time.Time
	percent   int // of GOGC, as set last
}

func newMemoryGuard(plan memoryPlan, logger *slog.Logger) *memoryGuard {
	return &memoryGuard{plan: plan, logger: logger, read: readHeap, collect: runtime.GC}
}

// guardMemory determines the limit of the process, sets GOMEMLIMIT, and divides the limit among the members.
func guardMemory(ctx context.Context, p cli.Process, set, ofMachinePercent int64, members int, logger *slog.Logger) *memoryGuard {
	from := memorySource{root: os.DirFS("/"), getenv: p.Getenv, goLimit: debug.SetMemoryLimit(-1)}
	limit, source := from.find(set, ofMachinePercent)
	plan := planMemory(limit, source, members).limitConnections(ctx, openFilesMax(), members, logger)
	limitMemory(ctx, &plan, p.Getenv, logger)
	g := newMemoryGuard(plan, logger)
	if p.Getenv("GOGC") == "" {
		g.pace = func(percent int) { debug.SetGCPercent(percent) }
	}
	return g
}

// readHeap returns the live heap after the last cycle of the garbage collector, in bytes, and the number of
// cycles.
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

// gcPercent returns the GOGC with which a live heap grows by heapGrowthBytesMin until the next cycle: 100 for a live heap of
// that size and for larger ones, more for smaller ones. (Go takes every heap for one of 4 MiB at least.)
func gcPercent(live, limit int64) int {
	growth := min(heapGrowthBytesMin, limit/100*heapGrowthPercentMax)
	return int(max(100, growth*100/max(live, 4<<20)/gcPercentStep*gcPercentStep))
}

// watch adds a member.
func (g *memoryGuard) watch(u memoryConsumer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.consumers = append(g.consumers, u)
	u.setShortOfMemory(g.overLimit)
}

// start checks memory every memoryCheckEvery until the returned function is called.
func (g *memoryGuard) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(memoryCheckEvery)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				g.check(ctx, now)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); group.Wait() }
}

// check compares the index with its share after each cycle of the garbage collector.
func (g *memoryGuard) check(ctx context.Context, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.measure(g.used())
	most := g.plan.index
	for _, u := range g.consumers {
		if n := int64(len(g.consumers)); u.setIndex(g.plan.index/n, g.index/n) {
			most = g.plan.index / 100 * memorySharedPercent
		}
	}
	if !g.overLimit && g.index > most {
		before := g.used()
		g.collect()
		g.measure(max(before, g.used()))
	}
	switch {
	case !g.overLimit && g.index > g.plan.index && g.index <= most && now.Sub(g.collected) >= memoryCollectEvery:
		g.collected = now
		g.collect()
	case !g.overLimit && g.index > most:
		g.set(true)
		g.logger.ErrorContext(ctx, "member became read-only: waiting messages exceeded their share of memory, so new messages and entities are refused; "+
			"receive, purge or delete messages, raise memory_limit, or move partitions to other members",
			"index_bytes", g.index, "index_bytes_max", g.plan.index, "limit_bytes", g.plan.limit)
		g.collected = now
	case g.overLimit && g.index <= g.plan.index/100*memoryResumePercent:
		g.set(false)
		g.logger.InfoContext(ctx, "member became writable again: enough memory was freed", "index_bytes", g.index)
	case g.overLimit && now.Sub(g.collected) >= memoryCollectEvery:
		g.collected = now
		g.collect()
	}
}

// used returns what the gateways hold, in bytes. The caller holds mu.
func (g *memoryGuard) used() (bytes int64) {
	for _, u := range g.consumers {
		bytes += u.memoryUsed()
	}
	return bytes
}

// measure computes the index after a new cycle of the garbage collector, in which the gateways held used bytes. The caller
// holds mu.
func (g *memoryGuard) measure(used int64) {
	live, cycles := g.read()
	if cycles == g.cycles {
		return
	}
	if percent := gcPercent(live, g.plan.limit); g.pace != nil && percent != g.percent {
		g.percent = percent
		g.pace(percent)
	}
	g.cycles, g.index = cycles, max(0, live-used)
}

// set changes the state and notifies the members. The caller holds mu.
func (g *memoryGuard) set(short bool) {
	g.overLimit = short
	for _, u := range g.consumers {
		u.setShortOfMemory(short)
	}
}

// statsFunc returns the source of the memory metrics, or nil without a memory limit.
func (g *memoryGuard) statsFunc() func() membermetrics.Memory {
	if g == nil {
		return nil
	}
	return g.stats
}

// stats returns the values of the memory metrics.
func (g *memoryGuard) stats() membermetrics.Memory {
	g.mu.Lock()
	defer g.mu.Unlock()
	return membermetrics.Memory{Limit: g.plan.limit, Index: g.index, IndexMax: g.plan.index}
}

// memoryUsed returns what the gateway holds for connections and for requests over HTTP, in bytes.
func (m *member) memoryUsed() int64 {
	return m.gateway.Stats().Memory.Used + m.gateway.Accounts().Used(account.HTTPBytes)
}

// setIndex divides the memory of the index among the namespaces.
func (m *member) setIndex(most, used int64) (isShared bool) {
	return m.node.SetMemory(most, used)
}

func (m *member) setShortOfMemory(on bool) { m.node.SetLowMemory(on) }
