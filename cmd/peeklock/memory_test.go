package main

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// files returns a file system with these names and contents.
func files(pairs ...string) fs.FS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

// The limit is the setting, otherwise that of the Go runtime, otherwise the smallest of the cgroups, otherwise a
// part of the memory of the machine.
func TestMemoryLimitIsTheFirstOneThatIsSet(t *testing.T) {
	t.Parallel()
	const machine = "MemFree: 1 kB\nMemTotal:       16777216 kB\n"
	for name, c := range map[string]struct {
		root    fs.FS
		set     int64
		env     string
		goLimit int64
		limit   int64
		source  string
	}{
		"set":     {files("proc/meminfo", machine), 7 << 30, "1GiB", 1 << 30, 7 << 30, memoryFromSetting},
		"go":      {files("proc/meminfo", machine), 0, "900MiB", 900 << 20, 1000 << 20, memoryFromGo},
		"go off":  {files("proc/meminfo", machine), 0, "off", math.MaxInt64, 8 << 30, memoryFromMachine},
		"machine": {files("proc/meminfo", machine), 0, "", math.MaxInt64, 8 << 30, memoryFromMachine},
		"nothing": {files(), 0, "", math.MaxInt64, memoryUnknownBytes, memoryFromNoSources},
		"container, version 2": {
			files("proc/meminfo", machine, "sys/fs/cgroup/memory.max", "1073741824\n", "proc/self/cgroup", "0::/\n"),
			0, "", math.MaxInt64, 1 << 30, memoryFromCgroup,
		},
		"service, version 2: the smallest above counts": {
			files("proc/meminfo", machine, "proc/self/cgroup", "0::/system.slice/peeklock.service\n",
				"sys/fs/cgroup/system.slice/memory.max", "1073741824\n", "sys/fs/cgroup/system.slice/peeklock.service/memory.max", "max\n"),
			0, "", math.MaxInt64, 1 << 30, memoryFromCgroup,
		},
		"version 1": {
			files("proc/meminfo", machine, "proc/self/cgroup", "5:cpuset:/x\n4:memory:/docker/1\n0::/\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n", "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2147483648\n"),
			0, "", math.MaxInt64, 2 << 30, memoryFromCgroup,
		},
		"a limit above the machine is none": {
			files("proc/meminfo", machine, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
			0, "", math.MaxInt64, 8 << 30, memoryFromMachine,
		},
	} {
		m := memorySource{root: c.root, getenv: func(string) string { return c.env }, goLimit: c.goLimit}
		limit, source := m.find(c.set, memoryOfMachineServePercent)
		if source != c.source || limit > c.limit || limit < c.limit-c.limit/1000 {
			t.Errorf("%s: %d from %s, want %d from %s", name, limit, source, c.limit, c.source)
		}
	}
}

// The sum of the parts fits into the limit, whatever it is, and no part is too small to work with.
func TestMemoryLimitIsDividedAmongMembers(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, config.MemoryLimitMin, 1 << 30, 2 << 30, 64 << 30} {
		for _, members := range []int{1, 3, 5} {
			p := planMemory(limit, "", members)
			if p.gateway < budget.BytesMin || p.connections < connectionsMin || p.connections > amqp.DefaultConfig().ConnectionsMax || p.limit != limit {
				t.Errorf("%d bytes, %d members: %+v", limit, members, p)
			}
			if total := p.index + int64(members)*(p.gateway+int64(p.connections)*connectionCostBytes); limit >= 1<<30 && total > limit/100*memoryGoPercent {
				t.Errorf("%d bytes, %d members: %d are given away", limit, members, total)
			}
		}
	}
	for _, c := range []struct {
		value   int
		isGiven bool
		want    int
	}{{5000, false, 400}, {5000, true, 5000}, {4999, true, 4999}, {0, true, 0}} {
		if got := (memoryPlan{connections: 800}).perAddress(c.value, c.isGiven); got != c.want {
			t.Errorf("%d connections of an address, given %t: %d, want %d", c.value, c.isGiven, got, c.want)
		}
	}
	if p := planMemory(2<<30, "", 1); p.connections < 6000 || p.gateway < 400<<20 || p.index < 800<<20 {
		t.Errorf("2 GiB: %+v", p)
	}
}

// A limit of open files lowers the number of connections, and only that, and leaves files for the data.
func TestLimitOfOpenFilesLowersConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		openFiles uint64
		members   int
		want      int
	}{
		{0, 1, 20_000},
		{math.MaxUint64, 3, 20_000},
		{65_536, 1, 20_000},
		{20_000 + openFilesReserved, 1, 20_000},
		{19_999 + openFilesReserved, 1, 19_999},
		{20_480, 1, 16_384},
		{20_480, 5, 2_048},
		{1_023, 1, 512},
		{1, 3, 1},
	} {
		p := memoryPlan{limit: 1, index: 2, gateway: 3, connections: 20_000}.
			limitConnections(t.Context(), c.openFiles, c.members, slog.New(slog.DiscardHandler))
		if want := (memoryPlan{limit: 1, index: 2, gateway: 3, connections: c.want}); p != want {
			t.Errorf("%d files, %d members: %+v", c.openFiles, c.members, p)
		}
	}
	if n := openFilesMax(); (runtime.GOOS == "linux" || runtime.GOOS == "darwin") && n == 0 {
		t.Error("the limit of this process is unknown")
	}
}

// user is a member that uses a given amount of memory.
type user struct {
	used  int64
	short bool
	told  int
	// shared says that several namespaces hold data.
	shared bool
}

func (u *user) memoryUsed() int64        { return u.used }
func (u *user) setShortOfMemory(on bool) { u.short, u.told = on, u.told+1 }
func (u *user) setIndex(_, _ int64) bool { return u.shared }

// While several namespaces share the index, those that hold most are refused first: all sends only when the index takes a
// quarter more than its share.
func TestGuardRefusesAllOnlyIfSharesDoNotHelp(t *testing.T) {
	t.Parallel()
	g := newMemoryGuard(memoryPlan{limit: 1000 << 20, index: 400 << 20}, slog.New(slog.DiscardHandler))
	var live int64
	var cycles uint64
	g.read = func() (int64, uint64) { cycles++; return live, cycles }
	g.collect = func() {}
	shared, alone := &user{shared: true}, &user{}
	now := time.Now()
	for _, c := range []struct {
		of   *user
		live int64
		want bool
	}{{alone, 401 << 20, true}, {shared, 401 << 20, false}, {shared, 499 << 20, false}, {shared, 501 << 20, true}, {shared, 359 << 20, false}} {
		g.consumers, live, now = []memoryConsumer{c.of}, c.live, now.Add(time.Second)
		if c.of == alone {
			g.overLimit = false
		}
		g.check(t.Context(), now)
		if c.of.short != c.want {
			t.Errorf("%d MiB, shared %t: all are refused %t, want %t", c.live>>20, c.of.shared, c.of.short, c.want)
		}
		if c.of == alone {
			g.overLimit = false
		}
	}
}

// A small heap is collected less often, within the limit of the process; a large one as Go does by default.
func TestCollectorIsPacedByTheHeap(t *testing.T) {
	t.Parallel()
	g := newMemoryGuard(memoryPlan{limit: 1 << 30, index: math.MaxInt64}, slog.New(slog.DiscardHandler))
	var live int64
	var cycles uint64
	var set []int
	g.read = func() (int64, uint64) { return live, cycles }
	g.pace = func(percent int) { set = append(set, percent) }
	for _, live = range []int64{16 << 20, 16<<20 + 1000, 32 << 20, 32 << 20, 64 << 20, 1 << 30, 0} {
		cycles++
		g.check(t.Context(), time.Time{})
	}
	if want := []int{400, 350, 200, 100, 1600}; !slices.Equal(set, want) {
		t.Errorf("set to %v, want %v", set, want)
	}
	if got := gcPercent(16<<20, 256<<20); got != 150 {
		t.Errorf("%d with a limit of 256 MiB", got)
	}
	g.pace = nil
	g.check(t.Context(), time.Time{}) // the environment has set it
}

// Sends are refused from the share of the index on, and accepted again when it is clearly below. What connections
// hold does not count as index, and the guard decides only once between two cycles of the garbage collector, the second of
// which it runs itself.
func TestMemoryGuardRefusesSendsAboveTheShare(t *testing.T) {
	t.Parallel()
	const share = 1000
	g := newMemoryGuard(memoryPlan{index: share}, slog.New(slog.DiscardHandler))
	live, cycles, collected := int64(0), uint64(0), 0
	g.read = func() (int64, uint64) { return live, cycles }
	confirmed := int64(0) // live heap after a cycle that the guard has run to measure again; 0: no other
	g.collect = func() {
		collected++
		if cycles++; confirmed > 0 {
			live = confirmed
		}
	}
	u := &user{}
	g.watch(u)
	now := time.Unix(1_000_000, 0)
	for i, c := range []struct {
		live, used int64
		same       bool // cycle
		after      time.Duration
		short      bool
		collected  int
		confirmed  int64
	}{
		{live: share},
		{live: share + 500, used: 500},
		{live: 2 * share, same: true},
		{live: 3 * share, collected: 1, confirmed: share}, // a burst of requests that have ended
		{live: share + 1, short: true, collected: 2},
		{live: share, short: true, collected: 2},
		{live: share, same: true, after: memoryCollectEvery, short: true, collected: 3},
		{live: share / 100 * memoryResumePercent, collected: 3},
		{live: 100, used: 500, collected: 3},
	} {
		live, u.used, confirmed = c.live, c.used, c.confirmed
		if !c.same {
			cycles++
		}
		now = now.Add(c.after)
		g.check(t.Context(), now)
		if u.short != c.short || collected != c.collected {
			t.Errorf("step %d: short %v, collected %d times", i, u.short, collected)
		}
	}
	if f := g.stats(); f.Index != 0 || f.IndexMax != share || u.told != 3 {
		t.Errorf("figures %+v, told %d times", f, u.told)
	}
	var none *memoryGuard
	if none.statsFunc() != nil {
		t.Error("figures of nothing")
	}
}

// The runtime provides the values that the guard uses.
func TestLiveHeapIsMeasured(t *testing.T) {
	t.Parallel()
	g := newMemoryGuard(memoryPlan{index: math.MaxInt64}, slog.New(slog.DiscardHandler))
	g.collect()
	live, cycles := g.read()
	if live < 1<<10 || cycles == 0 {
		t.Errorf("%d bytes live after %d cycles", live, cycles)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop := g.start(ctx)
	cancel()
	stop()
}
