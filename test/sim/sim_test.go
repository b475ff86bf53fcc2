package sim

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/history/linear"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// The variables that select what is simulated.
const (
	seedVariable   = "PEEKLOCK_SIM_SEED"   // one seed, to run it again
	hoursVariable  = "PEEKLOCK_SIM_HOURS"  // new seeds until so many hours have passed in the clusters
	faultsVariable = "PEEKLOCK_SIM_FAULTS" // kinds of faults, separated by commas, instead of the usual ones
	planVariable   = "PEEKLOCK_SIM_PLAN"   // a file with a plan, to run it again, instead of a seed
	eventsVariable = "PEEKLOCK_SIM_EVENTS" // a file that gets a line for each event, to compare two runs of the same
	judgeVariable  = "PEEKLOCK_SIM_JUDGE"  // linear: what only the independent checker finds counts
	shrinkVariable = "PEEKLOCK_SIM_SHRINK" // time for which a plan that failed is made smaller, such as 10m
)

const (
	planLength   = 5 * time.Minute
	shortLength  = 30 * time.Second // of the simulation in a plain go test ./...
	longSeeds    = 6                // of the selection of `make check`
	longLength   = time.Minute
	findingsMax  = 5 // that are printed of one seed
	parallelOf   = 4 // seeds of which one has more than one processor
	gcPercent    = 200
	deadlockText = "main bubble goroutine has exited"
)

// TestSimulation runs a cluster with faults in virtual time, from one seed.
func TestSimulation(t *testing.T) {
	seed, length := uint64(1), shortLength
	if text := os.Getenv(seedVariable); text != "" {
		length = planLength
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	plan := newPlan(seed, length)
	if path := os.Getenv(planVariable); path != "" {
		text, err := os.ReadFile(path)
		if err == nil {
			plan, err = simplan.Parse(string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if repeats {
		t.Log(simulateApart(t, plan))
		return
	}
	var total totals
	total.add(simulate1(t, plan))
	t.Log(&total)
}

// TestSimulations runs a selection of seeds, with -short only the first: with the race detector, each takes minutes.
func TestSimulations(t *testing.T) {
	kit.Long(t)
	seeds := uint64(longSeeds)
	if testing.Short() {
		seeds = 1
	}
	var total totals
	for seed := range seeds {
		total.add(simulate1(t, newPlan(1000+seed, longLength)))
	}
	t.Log(&total)
}

// TestSimulatedHours runs new seeds until a number of hours has passed in the clusters; `make sim` calls it.
func TestSimulatedHours(t *testing.T) {
	text := os.Getenv(hoursVariable)
	if text == "" {
		t.Skipf("%s, the hours to simulate, is not set; `make sim` sets it", hoursVariable)
	}
	hours, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s: %v", hoursVariable, err)
	}
	var total totals
	var drawn [8]byte
	_, _ = rand.Read(drawn[:5]) // of math/rand, every process has the same numbers where seeds repeat
	for seed := binary.LittleEndian.Uint64(drawn[:]); total.Virtual.Hours() < hours; seed++ {
		if plan := newPlan(seed, planLength); repeats {
			total.merge(simulateApart(t, plan))
		} else {
			total.add(simulate1(t, plan))
		}
		t.Log(&total)
	}
}

// newPlan draws a plan with the kinds of faults that were chosen.
func newPlan(seed uint64, length time.Duration) simplan.Plan {
	var of []simplan.Kind
	if text := os.Getenv(faultsVariable); text != "" {
		for name := range strings.SplitSeq(text, ",") {
			of = append(of, simplan.Kind(name))
		}
	}
	return simplan.New(seed, length, of...)
}

// simulate1 runs one plan. When something was found, it saves the result, makes the plan smaller if there is time for
// that, and saves the result of the smallest plan too.
func simulate1(t *testing.T, plan simplan.Plan) *result {
	t.Helper()
	saved := filepath.Join(os.TempDir(), fmt.Sprintf("peeklock-sim-%d", plan.Seed))
	r := run(t, plan, saved)
	if len(r.report.Findings) == 0 {
		return r
	}
	r.fail(t, saved)
	within, _ := time.ParseDuration(os.Getenv(shrinkVariable)) // without it there is no time
	until := time.Now().Add(within)
	smallest := simplan.Shrink(plan, func() bool { return time.Now().Before(until) }, func(p simplan.Plan) bool {
		tried := run(t, p, saved+"-small")
		t.Logf("%d faults in %v: %d findings in %v", len(p.Faults), p.Length, len(tried.report.Findings), tried.real.Round(time.Second))
		return len(tried.report.Findings) > 0
	})
	if len(smallest.Faults) < len(plan.Faults) || smallest.Length < plan.Length {
		t.Logf("smallest plan that failed, saved in %s-small: %v", saved, &smallest)
	}
	return r
}

// run runs one plan, and saves the result in a folder when something was found.
func run(t *testing.T, plan simplan.Plan, saved string) *result {
	t.Helper()
	dir, remove := runFolder(t)
	defer remove()
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer logFile.Close()
	defer tune(plan.Seed)()
	var lines io.Writer
	if os.Getenv(eventsVariable) != "" {
		file, err := os.Create(filepath.Join(dir, eventsFile))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		buffered := bufio.NewWriterSize(file, 64<<10)
		defer buffered.Flush()
		lines = buffered
	}
	cryptotest.SetGlobalRandom(t, plan.Seed)
	bubbleSeed = scheduleOf(plan.Seed)
	r := &result{begun: time.Now()}
	dog := startWatchdog(plan.Seed)
	defer close(dog.stop)
	inBubble(t, func() {
		dog.run(func() { r.report = Simulate(plan, lines, slog.New(slog.NewTextHandler(logFile, nil))) })
	})
	r.report.checkLinear()
	if os.Getenv(judgeVariable) == "linear" {
		r.report.Findings = nil
	}
	r.report.Findings = append(r.report.Findings, r.report.Linear.Found...)
	r.real = time.Since(r.begun)
	t.Logf("digest of seed %d: %016x", plan.Seed, r.report.Digest)
	if len(r.report.Findings) > 0 {
		if err := r.save(saved, logFile.Name()); err != nil {
			t.Error(err)
		}
	}
	return r
}

// tune sets the processors and the garbage collection of the process, until reset is called. The goroutines of a simulation
// wake each other all the time, which costs half as much again between processors. Some seeds have several nevertheless:
// there, goroutines really meet.
func tune(seed uint64) (reset func()) {
	processors := 1
	if seed%parallelOf == 0 && !repeats {
		processors = runtime.NumCPU()
	}
	percent := gcPercent
	if processors == 1 {
		percent = -1 // collectGarbage does
	}
	processors, percent = runtime.GOMAXPROCS(processors), debug.SetGCPercent(percent)
	return func() {
		runtime.GOMAXPROCS(processors)
		debug.SetGCPercent(percent)
	}
}

// scheduleOf returns the seed of the order in which goroutines run, for a simulation that repeats: bit 1 is always set, and
// bit 0 if the order is drawn, instead of that of one processor. That is so where the seed has several processors otherwise.
func scheduleOf(seed uint64) uint64 {
	schedule := seed<<2 | 2
	if seed%parallelOf == 0 {
		schedule |= 1
	}
	return schedule
}

// save replaces a folder by the result and its log.
func (r *result) save(folder, log string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := r.report.Save(folder); err != nil {
		return err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "log.txt"), text, 0o600)
}

// result is a simulation and the time that it took.
type result struct {
	report *Report
	begun  time.Time
	real   time.Duration
}

// fail reports what a simulation found.
func (r *result) fail(t *testing.T, saved string) {
	t.Helper()
	plan := &r.report.Plan
	t.Log(plan)
	for i, f := range r.report.Findings {
		if i < findingsMax {
			t.Log(f)
		}
	}
	t.Errorf("seed %d: %d findings after %v; plan, findings, histories and logs: %s; run it again, or look at the logs:\n"+
		"    make sim-replay PLAN=%s/plan\n"+
		"    %s=%d go test -count=1 -run '^TestSimulation$' ./test/sim\n"+
		"    go run ./cmd/peeklock debug replay %s",
		plan.Seed, len(r.report.Findings), r.report.Virtual, saved, saved, seedVariable, plan.Seed, saved)
}

// totals sums simulations.
type totals struct {
	Seeds, Failed int
	Virtual, Real time.Duration
	Operations    int64
	Faults        int
	ByKind        map[simplan.Kind]int
	Effects       map[simplan.Kind]int // see Report
	Linear        linear.Result
}

func (s *totals) merge(o *totals) {
	s.Seeds += o.Seeds
	s.Failed += o.Failed
	s.Virtual += o.Virtual
	s.Real += o.Real
	s.Operations += o.Operations
	s.Faults += o.Faults
	if s.ByKind == nil {
		s.ByKind, s.Effects = make(map[simplan.Kind]int), make(map[simplan.Kind]int)
	}
	for kind, n := range o.ByKind {
		s.ByKind[kind] += n
	}
	s.Linear.Checked += o.Linear.Checked
	s.Linear.Undecided += o.Linear.Undecided
	for kind, n := range o.Effects {
		s.Effects[kind] += n
	}
}

func (s *totals) add(r *result) {
	one := &totals{
		Seeds: 1, Virtual: r.report.Virtual, Real: r.real, Operations: r.report.Operations,
		Faults: len(r.report.Plan.Faults), ByKind: make(map[simplan.Kind]int), Effects: r.report.Effects, Linear: r.report.Linear,
	}
	if len(r.report.Findings) > 0 {
		one.Failed++
	}
	for _, f := range r.report.Plan.Faults {
		one.ByKind[f.Kind]++
	}
	s.merge(one)
}

// String reports the sums on one line.
func (s *totals) String() string {
	return fmt.Sprintf("%d seeds, %d failed; %v in the clusters in %v (%.0f to 1); %d operations (%.0f a second), a fault every %.0f s: %v; with an effect: %v; %d histories of a message or a session linearizable, %d undecided",
		s.Seeds, s.Failed, s.Virtual.Round(time.Second), s.Real.Round(time.Second), s.Virtual.Seconds()/s.Real.Seconds(),
		s.Operations, float64(s.Operations)/s.Virtual.Seconds(), s.Virtual.Seconds()/float64(max(1, s.Faults)), s.ByKind, s.Effects,
		s.Linear.Checked-s.Linear.Undecided, s.Linear.Undecided)
}

// inBubble runs f in virtual time. Raft does not answer all requests that are pending at its shutdown (see await in
// package partition): goroutines that wait for such an answer remain, and synctest panics because of them.
func inBubble(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if failed := recover(); failed != nil && !strings.Contains(fmt.Sprint(failed), deadlockText) {
			panic(failed)
		}
	}()
	synctest.Test(t, func(*testing.T) { f() })
}
