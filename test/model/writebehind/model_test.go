package writebehind_test

import (
	"testing"

	"github.com/peeklock/peeklock/test/model"
	"github.com/peeklock/peeklock/test/model/writebehind"
)

// statesMax bounds the memory of a run to about 1 GiB.
const statesMax = 12_000_000

// small is the model that `go test` checks.
func small() writebehind.Model {
	return writebehind.Model{Guards: writebehind.AllGuards(), Terms: 3, Entries: 4, Commands: 1, Faults: 1, Crashes: 1}
}

func TestWriteBehindIsSafe(t *testing.T) {
	t.Parallel()
	models := map[string]writebehind.Model{"small": small()}
	if model.IsFull() {
		larger := small()
		larger.Terms = 4
		models["four terms"] = larger
		longer := small()
		longer.Entries, longer.Commands, longer.Faults, longer.Crashes = 5, 2, 2, 1
		models["two commands, two faults"] = longer
	}
	for name, m := range models {
		model.ExpectSafe(t, name, m, statesMax)
	}
}

// TestEachGuardIsNeeded: without a guard, two replicas apply different entries.
func TestEachGuardIsNeeded(t *testing.T) {
	t.Parallel()
	for name, without := range map[string]func(*writebehind.Model){
		"apply awaits the disk":       func(m *writebehind.Model) { m.ApplyAwaitsDisk = false },
		"commit index is limited":     func(m *writebehind.Model) { m.LimitsCommit = false },
		"a former leader awaits":      func(m *writebehind.Model) { m.FollowerAwaits, m.Terms, m.Crashes = false, 4, 0 },
		"first entry is stored first": func(m *writebehind.Model) { m.FirstEntryStored, m.Terms, m.Commands, m.Crashes = false, 5, 0, 0 },
		"raft is reopened":            func(m *writebehind.Model) { m.ReopensOnFailure = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := small()
			without(&m)
			model.ExpectViolation(t, m, statesMax)
		})
	}
}
