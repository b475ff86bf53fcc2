package membership_test

import (
	"testing"

	"github.com/peeklock/peeklock/test/model"
	"github.com/peeklock/peeklock/test/model/membership"
)

// statesMax bounds the memory of a run to about 1 GiB.
const statesMax = 8_000_000

// small is the model of three members that `go test` checks.
func small() membership.Model {
	return membership.Model{Members: 3, Voters: 3, Terms: 4, Entries: 4, Faults: 1, ForgetsUnstored: true, NamesReplicas: true}
}

func TestMembershipIsSafe(t *testing.T) {
	t.Parallel()
	models := map[string]membership.Model{"three members": small()}
	if model.IsFull() {
		larger := small()
		larger.Entries, larger.Faults, larger.Restarts = 5, 2, 1
		models["longer logs, two faults, a restart"] = larger
		replaced := small()
		replaced.Members, replaced.Terms, replaced.Renames = 4, 3, 1
		models["a fourth member, a replica replaced"] = replaced
	}
	for name, m := range models {
		model.ExpectSafe(t, name, m, statesMax)
	}
}

// TestVotesByAddressMakeTwoLeaders: an empty replica that votes in place of its predecessor at the same member elects a second leader.
func TestVotesByAddressMakeTwoLeaders(t *testing.T) {
	t.Parallel()
	if !model.IsFull() {
		t.Skip("three million states: make model")
	}
	m := membership.Model{Members: 5, Voters: 5, Terms: 3, Entries: 5, Renames: 2, ForgetsUnstored: true}
	model.ExpectViolation(t, m, statesMax)
}

// TestUnstoredConfigurationSplitsTheBrain: a leader that goes on with a configuration that it could not store builds the next change on it.
func TestUnstoredConfigurationSplitsTheBrain(t *testing.T) {
	t.Parallel()
	m := small()
	m.ForgetsUnstored = false
	model.ExpectViolation(t, m, statesMax)
}
