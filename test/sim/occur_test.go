package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/test/kit"
)

// mayMiss lists the faults that are counted when they have an effect.
var mayMiss = []Kind{Unreadable, Garble, Shortage, Clocks, RollBack, Clone, Rename, Backlog}

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
		"clocks, held": {[]Fault{{Kind: Clocks, At: 8 * time.Second, Length: 10 * time.Second, Amount: 2 * clocks.StepMax}}, false},
		"roll back":    {[]Fault{{Kind: RollBack, At: 5 * time.Second, Length: 8 * time.Second, Member: 1, Other: 2}}, true},
		"rename, all":  {[]Fault{{Kind: Rename, At: 5 * time.Second, Length: 2 * time.Second, Member: 1, Other: 2}}, true},
		"rename, one":  {[]Fault{{Kind: Rename, At: 5 * time.Second, Length: 2 * time.Second, Member: 1, Other: 2, Amount: 1}}, true},
		"two of five":  {[]Fault{{Kind: Kill, At: 5 * time.Second, Length: 10 * time.Second, Member: 1, Other: 2}, {Kind: HungDisk, At: 5 * time.Second, Length: 10 * time.Second, Member: 2, Other: 3}}, true},
		"backlog": {[]Fault{
			{Kind: Backlog, At: time.Second},
			{Kind: LoseDisk, At: 20 * time.Second, Length: lagMargin, Member: 1, Other: 2},
			{Kind: Narrow, At: 20 * time.Second, Length: backlogLength, Member: 1, Other: 1, Amount: paceMax},
		}, true},
		"clone": {[]Fault{{Kind: Clone, At: 5 * time.Second, Length: 8 * time.Second, Member: 1, Other: 2}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if row.isLong {
				kit.Long(t)
			}
			members := 3
			if name == "two of five" {
				members = 5
			}
			r := simulate1(t, Plan{Seed: 42, Members: members, Partitions: 4, Length: shortLength, Faults: row.faults})
			for _, f := range row.faults {
				if slices.Contains(mayMiss, f.Kind) && r.report.Effects[f.Kind] == 0 {
					t.Errorf("%v had no effect", &f)
				}
			}
		})
	}
}
