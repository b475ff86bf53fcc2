package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// The variables of the storage-error matrix; `make matrix` sets them.
const (
	matrixVariable     = "PEEKLOCK_MATRIX"       // folder of the results; the matrix goes on where it was interrupted
	matrixPartVariable = "PEEKLOCK_MATRIX_PART"  // such as 2/5: the second of five parts
	matrixTimeVariable = "PEEKLOCK_MATRIX_TIME"  // real time after which no simulation begins, such as 3m
	matrixOnlyVariable = "PEEKLOCK_MATRIX_ONLY"  // texts, separated by commas, that the key of a job and its stack must have
	matrixPlanVariable = "PEEKLOCK_MATRIX_PLANS" // workloads, separated by commas, instead of all
	strideVariable     = "PEEKLOCK_MATRIX_EVERY" // calls between two that fail, after all stacks; 0: stacks only
	matrixApart        = "PEEKLOCK_MATRIX_APART" // set in the process of one simulation
)

const (
	outcomeFile = "outcome"
	callsFile   = "calls"
	stallMax    = 8.0             // seconds for which sends may pause longer than without the failed call
	stallWindow = 30              // seconds after the call
	matrixRun   = 5 * time.Minute // real time of one simulation
	missed      = "the simulation has not made the call"
	tailBytes   = 4 << 10 // of the output of a process that failed
)

// matrixPlans are the workloads in which calls fail. Leaders are cut off first and truncate their logs afterwards; nothing else happens
// until calls.repair has compared the replicas.
var matrixPlans = map[string]string{
	"boot": "1 3 2 0s\n",
	"three": "5 3 3 1m35s\n" +
		"5s 5s 0 0 0s isolate\n12s 5s 1 1 0s isolate\n19s 5s 2 2 0s isolate\n" +
		"57s 3s 1 1 0s restart\n62s 3s 0 0 0s power loss\n67s 4s 2 2 0s flip journal\n77s 10s 1 2 0s scale\n1m34s 1s 0 1 0s reset\n",
	"five": "6 5 3 1m35s\n" +
		"3s 1s 1 2 0s move\n5s 5s 0 0 0s isolate\n12s 5s 1 1 0s isolate\n19s 5s 4 4 0s isolate\n" +
		"57s 1s 0 1 0s move\n58s 5s 2 3 0s drain\n65s 3s 3 3 0s power loss\n70s 4s 1 1 0s flip journal\n79s 10s 2 3 0s scale\n1m34s 1s 0 1 0s reset\n",
}

// matrixJob is one simulation of the matrix.
type matrixJob struct {
	Plan string
	simplan.FailedCall

	Why   string // stack, pair or stride
	Round int    // how many simulations of the same stack come first
}

func (j matrixJob) key() string {
	return fmt.Sprintf("%s %016x %d %s", j.Plan, j.Stack, j.Number, j.Class)
}

// matrixResult is a line of the results.
type matrixResult struct {
	matrixJob

	Key     string
	Outcome Outcome
	Seconds float64
}

// matrixBase is a workload without a failed call.
type matrixBase struct {
	Outcome Outcome
	Calls   []Call
	Stacks  map[uint64]string
}

// TestMatrix makes calls of the storage fail, one in each of GOMAXPROCS simulations at a time, in the order of [matrix.jobs].
func TestMatrix(t *testing.T) {
	folder := os.Getenv(matrixVariable)
	if folder == "" || !repeats {
		t.Skipf("%s, the folder of the results, is not set; `make matrix` sets it", matrixVariable)
	}
	part, of := 1, 1
	if text := os.Getenv(matrixPartVariable); text != "" {
		if _, err := fmt.Sscanf(text, "%d/%d", &part, &of); err != nil || part < 1 || part > of {
			t.Fatalf("%s: %q", matrixPartVariable, text)
		}
	}
	var until time.Time
	if text := os.Getenv(matrixTimeVariable); text != "" {
		length, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		until = time.Now().Add(length)
	}
	m := openMatrix(t, folder)
	jobs := m.jobs(strings.Split(cmp.Or(os.Getenv(matrixPlanVariable), "boot,three,five"), ","))
	var mine []matrixJob
	for i, j := range jobs {
		if i%of == part-1 && m.done[j.key()] == nil && m.isChosen(j) {
			mine = append(mine, j)
		}
	}
	t.Logf("%d simulations in all, %d to do in part %d of %d", len(jobs), len(mine), part, of)
	next := make(chan matrixJob)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range next {
				m.run(j)
			}
		})
	}
	for _, j := range mine {
		if !until.IsZero() && time.Now().After(until) {
			break
		}
		next <- j
	}
	close(next)
	workers.Wait()
	t.Logf("%d simulations in this run, %d failed; %d did not make the call again", m.ran, m.failed, m.missed)
}

var whyOrder = map[string]int{"stack": 0, "pair": 1, "stride": 2}

// matrix runs jobs and keeps their results.
type matrix struct {
	t       *testing.T
	folder  string
	program [4]byte // checksum of the program: another one makes other calls
	bases   map[string]*matrixBase

	mu          sync.Mutex
	done        map[string]*matrixResult
	results     *os.File
	ran, failed int
	missed      int
}

// openMatrix reads the results so far.
func openMatrix(t *testing.T, folder string) *matrix {
	t.Helper()
	m := &matrix{t: t, folder: folder, bases: make(map[string]*matrixBase), done: make(map[string]*matrixResult)}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	itself, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(itself)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	copy(m.program[:], sum[:])
	for _, r := range readResults(t, folder) {
		m.done[r.Key] = r
	}
	name := "results-" + strings.ReplaceAll(cmp.Or(os.Getenv(matrixPartVariable), "1/1"), "/", "-of-")
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	m.results = file
	return m
}

func readResults(t *testing.T, folder string) (list []*matrixResult) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "results-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			r := new(matrixResult)
			if err := json.Unmarshal(line, r); err == nil { // the last line may be torn
				list = append(list, r)
			}
		}
	}
	return list
}

// jobs lists the simulations of some workloads in the order in which they are worth running: one call of each stack, with the classes
// spread over the stacks, then a second one of each with another class or in another workload, and so on; then the pairs; then the strides.
func (m *matrix) jobs(names []string) (jobs []matrixJob) {
	for w, name := range names {
		base := m.base(name)
		seen := make(map[uint64]bool)
		for _, c := range base.Calls {
			why := "pair"
			if !seen[c.Stack] {
				why = "stack"
			}
			if seen[c.Pair] && why == "pair" {
				continue
			}
			seen[c.Stack], seen[c.Pair] = true, true
			all := classes[c.Name]
			for i := range all {
				class := all[(int(c.Stack%uint64(len(all)))+w+i)%len(all)]
				jobs = append(jobs, matrixJob{name, simplan.FailedCall{Stack: c.Stack, Number: c.Number, Class: class}, why, i*len(names) + w})
			}
		}
		every, _ := strconv.Atoi(os.Getenv(strideVariable)) // without it there are none
		for i := every; every > 0 && i < len(base.Calls); i += every {
			c := &base.Calls[i]
			all := classes[c.Name]
			jobs = append(jobs, matrixJob{name, simplan.FailedCall{Stack: c.Stack, Number: c.Number, Class: all[i/every%len(all)]}, "stride", 0})
		}
	}
	inOrder := func(a, b matrixJob) int {
		return cmp.Or(cmp.Compare(whyOrder[a.Why], whyOrder[b.Why]), cmp.Compare(a.Round, b.Round))
	}
	slices.SortStableFunc(jobs, inOrder)
	times := make(map[uint64]int) // by stack: how often it is in the list so far
	for i := range jobs {
		if j := &jobs[i]; j.Why == "stack" {
			j.Round = times[j.Stack]
			times[j.Stack]++
		}
	}
	slices.SortStableFunc(jobs, inOrder)
	return jobs
}

// isChosen reports whether a job has all texts that are asked for.
func (m *matrix) isChosen(j matrixJob) bool {
	for text := range strings.SplitSeq(os.Getenv(matrixOnlyVariable), ",") {
		if !strings.Contains(j.key()+"\n"+m.bases[j.Plan].Stacks[j.Stack], text) {
			return false
		}
	}
	return true
}

// call returns the call of a job as it is without a failure.
func (b *matrixBase) call(j matrixJob) *Call {
	i := slices.IndexFunc(b.Calls, func(c Call) bool { return c.Stack == j.Stack && c.Number == j.Number })
	return &b.Calls[i]
}

// base returns a workload without a failed call: its calls are the numbers of the others.
func (m *matrix) base(name string) *matrixBase {
	m.t.Helper()
	if m.bases[name] != nil {
		return m.bases[name]
	}
	base := new(matrixBase)
	kept := filepath.Join(m.folder, fmt.Sprintf("base-%s-%x", name, m.program))
	if readJSON(kept, base) == nil {
		m.bases[name] = base
		return base
	}
	dir, output, err := m.apart(matrixJob{Plan: name, FailedCall: simplan.FailedCall{Class: "none"}})
	defer os.RemoveAll(dir)
	if err == nil {
		err = readJSON(filepath.Join(dir, callsFile), base)
	}
	if err != nil {
		m.t.Fatalf("workload %s: %v\n%s", name, err, output)
	}
	if len(base.Outcome.Findings) > 0 {
		m.t.Fatalf("workload %s fails without a failed call: %q", name, base.Outcome.Findings)
	}
	writeJSON(m.t, kept, base)
	m.t.Logf("workload %s: %d calls of %d stacks", name, len(base.Calls), len(base.Stacks))
	m.bases[name] = base
	return base
}

func readJSON(path string, to any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return err
}

// run does one job and keeps its result.
func (m *matrix) run(j matrixJob) {
	begun := time.Now()
	dir, output, err := m.apart(j)
	defer os.RemoveAll(dir)
	r := &matrixResult{matrixJob: j, Key: j.key()}
	if err == nil {
		err = readJSON(filepath.Join(dir, outcomeFile), &r.Outcome)
	}
	if err != nil {
		r.Outcome.Findings = append(r.Outcome.Findings, fmt.Sprintf("the simulation ended: %v: %s", err, output))
	}
	base := m.bases[j.Plan]
	want := base.call(j)
	switch {
	case err != nil:
		r.Outcome.Call, r.Outcome.Text = *want, base.Stacks[want.Stack]
	case !r.Outcome.Reached:
		r.Outcome.Note = missed
	case r.Outcome.MustContinue:
		if stall := r.Outcome.stall() - base.Outcome.stallFrom(want.At); stall > stallMax {
			r.Outcome.Findings = append(r.Outcome.Findings, fmt.Sprintf("sends paused %.1f s longer than without the failed call", stall))
		}
	}
	r.Seconds = time.Since(begun).Seconds()
	line, err := json.Marshal(r)
	if err != nil {
		m.t.Error(err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ran++
	if r.Outcome.Note == missed {
		m.missed++
	}
	m.done[r.Key] = r
	if _, err := m.results.Write(append(line, '\n')); err != nil {
		m.t.Error(err)
	}
	if len(r.Outcome.Findings) > 0 {
		m.failed++
		m.t.Errorf("%s: %s of %s: %q\n%s", r.Key, r.Outcome.Call.Name, r.Outcome.Call.Path, r.Outcome.Findings[:min(findingsMax, len(r.Outcome.Findings))], r.Outcome.Text)
	}
}

// stall returns the longest pause of sends after the call.
func (o *Outcome) stall() float64 { return o.stallFrom(o.Call.At) }

func (o *Outcome) stallFrom(at time.Duration) (longest float64) {
	from := int(at.Seconds())
	for second := from; second < min(from+stallWindow, len(o.Gaps)); second++ {
		longest = max(longest, o.Gaps[second])
	}
	return longest
}

// apart runs a job in a process of its own, see simulateApart. The caller removes the folder.
func (m *matrix) apart(j matrixJob) (dir, output string, err error) {
	plan, err := simplan.Parse(matrixPlans[j.Plan])
	if err != nil {
		return "", "", err
	}
	plan.Call = &j.FailedCall
	if dir, err = os.MkdirTemp(kit.MemoryDir(m.t), "matrix-"); err != nil {
		return "", "", err
	}
	if err := os.WriteFile(filepath.Join(dir, planFile), []byte(plan.Text()), 0o600); err != nil {
		return dir, "", err
	}
	itself, err := os.Executable()
	if err != nil {
		return dir, "", err
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), matrixRun)
	defer cancel()
	child := exec.CommandContext(ctx, itself, "-test.timeout", "0", "-test.run", "^TestMatrixApart$")
	child.Dir = dir
	child.Env = []string{matrixApart + "=1", "GOMAXPROCS=1", "GOGC=off", "TMPDIR=" + os.TempDir(), "PEEKLOCK_PLANTED=" + os.Getenv("PEEKLOCK_PLANTED")}
	out, err := child.CombinedOutput()
	return dir, string(out[max(0, len(out)-tailBytes):]), err
}

// TestMatrixApart runs the plan in the current folder, for TestMatrix.
func TestMatrixApart(t *testing.T) {
	if os.Getenv(matrixApart) == "" {
		t.Skip("another test runs this one in a process of its own")
	}
	text, err := os.ReadFile(planFile)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := simplan.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	logFile, err := os.Create("log")
	if err != nil {
		t.Fatal(err)
	}
	defer logFile.Close()
	lines := bufio.NewWriterSize(logFile, 1<<20)
	defer tune(plan.Seed)()
	cryptotest.SetGlobalRandom(t, plan.Seed)
	bubbleSeed = scheduleOf(plan.Seed)
	dog := startWatchdog(plan.Seed)
	defer close(dog.stop)
	var report *Report
	inBubble(t, func() {
		dog.run(func() { report = Simulate(plan, nil, slog.New(slog.NewTextHandler(lines, nil))) })
	})
	if err := lines.Flush(); err != nil {
		t.Fatal(err)
	}
	outcome := report.calls.outcome(report)
	if plan.Call.Number == 0 {
		writeJSON(t, callsFile, matrixBase{outcome, report.calls.made, report.calls.stacks})
	}
	writeJSON(t, outcomeFile, outcome)
	if len(outcome.Findings) > 0 {
		saved := filepath.Join(os.TempDir(), fmt.Sprintf("peeklock-matrix-%d-%x-%d-%s", plan.Seed, plan.Call.Stack, plan.Call.Number, strings.ReplaceAll(string(plan.Call.Class), " ", "-")))
		if err := (&result{report: report}).save(saved, logFile.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

func writeJSON(t *testing.T, path string, from any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestMatrixBeginsWithEveryStack(t *testing.T) {
	a, b, c := Call{Name: simfs.CallRead, Stack: 1, Number: 1}, Call{Name: simfs.CallWrite, Stack: 2, Number: 1}, Call{Name: simfs.CallSync, Stack: 3, Number: 1}
	again := Call{Name: simfs.CallRead, Stack: 1, Number: 2, Pair: 4}
	m := &matrix{t: t, bases: map[string]*matrixBase{"x": {Calls: []Call{a, b, again}}, "y": {Calls: []Call{b, c}}}}
	jobs := m.jobs([]string{"x", "y"})
	for from, want := range map[int]int{0: 3, 3: 3} {
		seen := make(map[uint64]bool)
		for _, j := range jobs[from : from+want] {
			seen[j.Stack] = true
		}
		if len(seen) != want {
			t.Errorf("got %d stacks in %v, want %d", len(seen), jobs[from:from+want], want)
		}
	}
	if want := len(classes[a.Name])*2 + len(classes[b.Name])*2 + len(classes[c.Name]); len(jobs) != want {
		t.Errorf("got %d simulations, want %d", len(jobs), want)
	}
}
