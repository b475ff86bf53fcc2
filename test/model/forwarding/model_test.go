package forwarding_test

import (
	"os"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/model"
	"github.com/peeklock/peeklock/test/model/forwarding"
)

// statesMax bounds the memory of a run to about 1 GiB.
const statesMax = 12_000_000

func isFull() bool { return os.Getenv("PEEKLOCK_MODEL") == "full" }

// small is the model that `go test` checks.
func small() forwarding.Model {
	return forwarding.Model{Guards: forwarding.AllGuards(), Messages: 3, Copies: 2, Restores: true}
}

func TestForwardingKeepsItsPromises(t *testing.T) {
	t.Parallel()
	models := map[string]forwarding.Model{"small": small()}
	if isFull() {
		more := small()
		more.Messages = 4
		models["four messages"] = more
		later := small()
		later.Messages, later.Copies = 4, 3
		models["four messages, three late transfers and answers"] = later
		plain := later
		plain.Messages, plain.Restores = 5, false
		models["five messages without a restore"] = plain
	}
	for name, m := range models {
		r := model.Run(m, statesMax)
		t.Logf("%s: %v", name, r)
		if r.Violation != nil || !r.Complete {
			t.Errorf("%s: %v:\n%s", name, r, strings.Join(r.Trace, "\n"))
		}
	}
}

// TestEachGuardIsNeeded: without a guard, a message is lost or arrives too often.
func TestEachGuardIsNeeded(t *testing.T) {
	t.Parallel()
	for name, without := range map[string]func(*forwarding.Model){
		"remembers the last batch": func(m *forwarding.Model) { m.RemembersLast = false },
		"restore begins an epoch":  func(m *forwarding.Model) { m.RestoreBeginsEpoch = false },
		"remembers former epochs":  func(m *forwarding.Model) { m.RemembersFormer = false },
		"renewal names the epoch":  func(m *forwarding.Model) { m.RenewalNamesEpoch = false },
		"renewal names the serial": func(m *forwarding.Model) { m.RenewalNamesSerial = false },
		"report names the serial":  func(m *forwarding.Model) { m.ReportNamesSerial = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := small()
			without(&m)
			r := model.Run(m, statesMax)
			t.Logf("%v:\n%s", r, strings.Join(r.Trace, "\n"))
			if r.Violation == nil {
				t.Error("no violation was found without the guard")
			}
		})
	}
}
