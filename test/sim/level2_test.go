//go:build level2

package sim

import (
	"testing"
	"time"
)

// TestSimulationOfTheNextLevel upgrades three members of the former release one after the other, while members of both are killed, lose power,
// are moved and lag behind.
func TestSimulationOfTheNextLevel(t *testing.T) {
	at := func(kind Kind, second, length time.Duration, member int) Fault {
		return Fault{Kind: kind, At: second * time.Second, Length: length * time.Second, Member: member, Other: (member + 1) % 3}
	}
	simulate1(t, Plan{Seed: 7, Members: 3, Partitions: 4, Length: 40 * time.Second, Faults: []Fault{
		at(Upgrade, 4, 1, 0), at(Kill, 6, 2, 1), at(Move, 9, 1, 2), at(Upgrade, 12, 1, 1), at(PowerLoss, 14, 3, 0),
		at(Isolate, 19, 4, 2), at(Upgrade, 25, 1, 2), at(Kill, 27, 3, 2), at(Blackout, 33, 2, 0),
	}})
}
