package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// The variables that select what is simulated.
const (
	seedVariable   = "PEEKLOCK_SIM_SEED"   // one seed, to run it again
	hoursVariable  = "PEEKLOCK_SIM_HOURS"  // new seeds until so many hours have passed in the clusters
	faultsVariable = "PEEKLOCK_SIM_FAULTS" // kinds of faults, separated by commas, instead of the usual ones
)

const (
	planLength   = 5 * time.Minute
	shortLength  = 30 * time.Second // of the simulation in a plain go test ./...
	longSeeds    = 6                // of the selection of `make check`
	longLength   = time.Minute
	findingsMax  = 5 // that are printed of one seed
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
	var total totals
	total.add(simulateSeed(t, seed, length))
	t.Log(&total)
}

// TestSimulations runs a selection of seeds.
func TestSimulations(t *testing.T) {
	kit.Long(t)
	var total totals
	for seed := range uint64(longSeeds) {
		total.add(simulateSeed(t, 1000+seed, longLength))
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
	for seed := rand.Uint64N(1 << 40); total.virtual.Hours() < hours; seed++ {
		total.add(simulateSeed(t, seed, planLength))
		t.Log(&total)
	}
}

// simulateSeed runs one seed, and saves the log when something was found.
func simulateSeed(t *testing.T, seed uint64, length time.Duration) *result {
	t.Helper()
	dir, err := os.MkdirTemp(kit.MemoryDir(t), "seed-") //nolint:usetesting // removed before the test ends
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer logFile.Close()
	var of []Kind
	if text := os.Getenv(faultsVariable); text != "" {
		for name := range strings.SplitSeq(text, ",") {
			of = append(of, Kind(name))
		}
	}
	r := &result{begun: time.Now()}
	dog := startWatchdog(seed)
	defer close(dog.stop)
	inBubble(t, func() {
		dog.run(func() {
			r.report = Simulate(NewPlan(seed, length, of...), slog.New(slog.NewTextHandler(logFile, nil)))
		})
	})
	r.real = time.Since(r.begun)
	if len(r.report.Findings) > 0 {
		r.fail(t, logFile.Name())
	}
	return r
}

// result is a simulation and the time that it took.
type result struct {
	report *Report
	begun  time.Time
	real   time.Duration
}

// fail reports what a simulation found.
func (r *result) fail(t *testing.T, log string) {
	t.Helper()
	plan := &r.report.Plan
	saved := filepath.Join(os.TempDir(), fmt.Sprintf("peeklock-sim-%d.txt", plan.Seed))
	text, err := os.ReadFile(log)
	if err == nil {
		all := fmt.Sprintf("%v\n%s\n\n%s\n%s", plan, strings.Join(r.report.Findings, "\n"), text, r.report.Stacks)
		err = os.WriteFile(saved, []byte(all), 0o600)
	}
	for i, f := range r.report.Findings {
		if i < findingsMax {
			t.Log(f)
		}
	}
	t.Errorf("seed %d: %d findings after %v; plan, findings and log: %s %v; run it again:\n    %s=%d go test -count=1 -run '^TestSimulation$' ./test/sim",
		plan.Seed, len(r.report.Findings), r.report.Virtual, saved, err, seedVariable, plan.Seed)
}

// totals sums simulations.
type totals struct {
	seeds, failed int
	virtual, real time.Duration
	operations    int64
	faults        int
	byKind        map[Kind]int
}

func (s *totals) add(r *result) {
	s.seeds++
	if len(r.report.Findings) > 0 {
		s.failed++
	}
	s.virtual += r.report.Virtual
	s.real += r.real
	s.operations += r.report.Operations
	if s.byKind == nil {
		s.byKind = make(map[Kind]int)
	}
	for _, f := range r.report.Plan.Faults {
		s.faults++
		s.byKind[f.Kind]++
	}
}

// String reports the sums on one line.
func (s *totals) String() string {
	return fmt.Sprintf("%d seeds, %d failed; %v in the clusters in %v (%.0f to 1); %d operations (%.0f a second), a fault every %.0f s: %v",
		s.seeds, s.failed, s.virtual.Round(time.Second), s.real.Round(time.Second), s.virtual.Seconds()/s.real.Seconds(),
		s.operations, float64(s.operations)/s.virtual.Seconds(), s.virtual.Seconds()/float64(max(1, s.faults)), s.byKind)
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
