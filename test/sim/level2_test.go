//go:build level2

package sim

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/sim/simplan"
)

// TestSimulationOfTheNextLevel upgrades three members of the former release one after the other, while members of both are killed, lose power,
// are moved and lag behind.
func TestSimulationOfTheNextLevel(t *testing.T) {
	at := func(kind simplan.Kind, second, length time.Duration, member int) simplan.Fault {
		return simplan.Fault{Kind: kind, At: second * time.Second, Length: length * time.Second, Member: member, Other: (member + 1) % 3}
	}
	simulate1(t, simplan.Plan{Seed: 7, Members: 3, Partitions: 4, Length: 40 * time.Second, Faults: []simplan.Fault{
		at(simplan.Upgrade, 4, 1, 0), at(simplan.Kill, 6, 2, 1), at(simplan.Move, 9, 1, 2), at(simplan.Upgrade, 12, 1, 1), at(simplan.PowerLoss, 14, 3, 0),
		at(simplan.Isolate, 19, 4, 2), at(simplan.Upgrade, 25, 1, 2), at(simplan.Kill, 27, 3, 2), at(simplan.Blackout, 33, 2, 0),
	}})
}
