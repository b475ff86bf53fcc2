package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// apartVariable says that the process runs one plan, for another process.
const apartVariable = "PEEKLOCK_SIM_APART"

// The files in the folder of a process that runs one plan.
const (
	planFile   = "plan"
	totalsFile = "totals"
	eventsFile = "events"
)

// simulateApart runs a plan in a process of its own. Where an object lies in memory decides about the order in which
// some maps are read, so everything that the process does before the simulation is the same for each plan: it has one
// thread for Go, the same variables, and the same relative paths.
func simulateApart(t *testing.T, plan simplan.Plan) *totals {
	t.Helper()
	dir, err := os.MkdirTemp(kit.MemoryDir(t), "seed-") //nolint:usetesting // removed before the test ends
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, planFile), []byte(plan.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	itself, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), itself, "-test.v", "-test.timeout", "0", "-test.run", "^TestApart$")
	child.Dir, child.Stdout, child.Stderr = dir, os.Stdout, os.Stderr
	child.Env = []string{apartVariable + "=1", "GOMAXPROCS=1", "GOGC=off"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", eventsVariable, shrinkVariable, judgeVariable, "PEEKLOCK_PLANTED", "PEEKLOCK_LOG_STORE"} {
		child.Env = append(child.Env, name+"="+os.Getenv(name))
	}
	if err := child.Run(); err != nil {
		t.Errorf("seed %d: %v", plan.Seed, err)
	}
	var total totals
	text, err := os.ReadFile(filepath.Join(dir, totalsFile))
	if err == nil {
		err = json.Unmarshal(text, &total)
	}
	if err != nil {
		t.Fatalf("seed %d: %v", plan.Seed, err)
	}
	if to := os.Getenv(eventsVariable); to != "" {
		events, err := os.ReadFile(filepath.Join(dir, eventsFile))
		if err == nil {
			err = os.WriteFile(to, events, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
	return &total
}

// TestApart runs the plan in the current folder, for simulateApart.
func TestApart(t *testing.T) {
	if os.Getenv(apartVariable) == "" {
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
	var total totals
	total.add(simulate1(t, plan))
	if text, err = json.Marshal(&total); err == nil {
		err = os.WriteFile(totalsFile, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// runFolder returns a folder for the files of one run, in memory: the current one in a process that runs one plan.
func runFolder(t *testing.T) (dir string, remove func()) {
	t.Helper()
	if os.Getenv(apartVariable) != "" {
		return ".", func() {}
	}
	dir, err := os.MkdirTemp(kit.MemoryDir(t), "seed-") //nolint:usetesting // removed before the test ends
	if err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
