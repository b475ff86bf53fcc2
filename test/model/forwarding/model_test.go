package forwarding_test

import (
	"testing"

	"github.com/peeklock/peeklock/test/model"
	"github.com/peeklock/peeklock/test/model/forwarding"
)

// statesMax bounds the memory of a run to about 1 GiB.
const statesMax = 12_000_000

// small is the model that `go test` checks.
func small() forwarding.Model {
	return forwarding.Model{Guards: forwarding.AllGuards(), Messages: 3, Copies: 2, Restores: true}
}

func TestForwardingKeepsItsPromises(t *testing.T) {
	t.Parallel()
	models := map[string]forwarding.Model{"small": small()}
	if model.IsFull() {
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
		model.ExpectSafe(t, name, m, statesMax)
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
			model.ExpectViolation(t, m, statesMax)
		})
	}
}
