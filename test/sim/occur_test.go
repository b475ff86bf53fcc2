package sim

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// TestFaultsOccur runs short plans with the faults that some plans draw in vain: each must have its effect, and nothing is found.
func TestFaultsOccur(t *testing.T) {
	for name, row := range map[string]struct {
		faults []Fault
		isLong bool
	}{
		"unreadable journal": {[]Fault{{Kind: Unreadable, At: 8 * time.Second, Length: 10 * time.Second, Member: 1, Other: 2, Amount: 2}}, true},
		"garble, shortage, clocks": {[]Fault{
			{Kind: Garble, At: 5 * time.Second, Length: 10 * time.Second, Member: 1, Other: 2},
			{Kind: Shortage, At: 16 * time.Second, Length: 5 * time.Second, Member: 1, Other: 2, Amount: 2},
			{Kind: Clocks, At: 22 * time.Second, Length: 5 * time.Second, Amount: 4 * time.Second},
		}, false},
		"roll back": {[]Fault{{Kind: RollBack, At: 5 * time.Second, Length: 8 * time.Second, Member: 1, Other: 2}}, true},
		"clone":     {[]Fault{{Kind: Clone, At: 5 * time.Second, Length: 8 * time.Second, Member: 1, Other: 2}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if row.isLong {
				kit.Long(t)
			}
			r := simulate1(t, Plan{Seed: 41, Members: 3, Partitions: 4, Length: shortLength, Faults: row.faults})
			for _, f := range row.faults {
				if r.report.Effects[f.Kind] == 0 {
					t.Errorf("%v had no effect", &f)
				}
			}
		})
	}
}
