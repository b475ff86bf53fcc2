package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/peeklock/peeklock/test/history/linear"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// Report says what a simulation did and found.
type Report struct {
	Plan       simplan.Plan
	Virtual    time.Duration // from the start of the members until the judges had finished
	Operations int64         // that clients saw succeed
	Findings   []string      // each a violation; none: the cluster kept its promises
	Stacks     string        // of all goroutines, when not everything was served in time

	// Digest is a checksum of all that happened, and when.
	Digest uint64

	// Effects counts the faults that had an effect, of the kinds of which some have none.
	Effects map[simplan.Kind]int

	// Linear is what an independent checker has found, which runs after the simulation.
	Linear linear.Result

	streams   []*judge.Stream
	restored  *judge.Restoration
	recorders []*recorder
	calls     *calls // nil: they were not counted
}

func (r *Report) find(format string, arguments ...any) {
	r.Findings = append(r.Findings, fmt.Sprintf(format, arguments...))
}

// checkLinear adds what Porcupine finds in the histories of the streams. It takes real time.
func (r *Report) checkLinear() {
	for _, s := range r.streams {
		found := s.CheckLinear(r.restored)
		r.Linear.Checked += found.Checked
		r.Linear.Undecided += found.Undecided
		r.Linear.Found = append(r.Linear.Found, found.Found...)
	}
}

// Save writes the plan, the findings, the histories of all streams and the log of each group into a folder. What a
// folder is for is in test/README.md, "Simulation".
func (r *Report) Save(folder string) error {
	if err := os.MkdirAll(filepath.Join(folder, "history"), 0o750); err != nil {
		return fmt.Errorf("save a simulation: %w", err)
	}
	texts := map[string]string{"plan": r.Plan.Text(), "plan.txt": r.Plan.String(), "findings.txt": strings.Join(r.Findings, "\n") + "\n"}
	if r.Stacks != "" {
		texts["stacks.txt"] = r.Stacks
	}
	for _, s := range r.streams {
		var lines strings.Builder
		for _, e := range s.Events() {
			fmt.Fprintf(&lines, "%s %v\n", e.ID, e)
		}
		texts[filepath.Join("history", s.Name+".txt")] = lines.String()
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("save a simulation: %w", err)
		}
	}
	for i, of := range r.recorders {
		if err := of.save(filepath.Join(folder, []string{"groups", "groups-restored"}[i])); err != nil {
			return fmt.Errorf("save a simulation: %w", err)
		}
	}
	return nil
}
