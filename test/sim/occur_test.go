package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// mayMiss lists the faults that are counted when they have an effect.
var mayMiss = []simplan.Kind{simplan.Unreadable, simplan.Garble, simplan.Shortage, simplan.Clocks, simplan.RollBack, simplan.Clone, simplan.Rename, simplan.Backlog}

// TestFaultsOccur runs short plans with the faults that some plans draw in vain: each must have its effect, and nothing is found.
func TestFaultsOccur(t *testing.T) {
	for name, row := range map[string]struct {
		faults []simplan.Fault
		isLong bool
	}{
		"unreadable journal": {[]simplan.Fault{{Kind: simplan.Unreadable, At: 8 * time.Second, Length: 10 * time.Second, Member: 1, Other: 2, Amount: 2}}, true},
		"garble, shortage, clocks": {[]simplan.Fault{
			{Kind: simplan.Garble, At: 5 * time.Second, Length: 10 * time.Second, Member: 1, Other: 2},
			{Kind: simplan.Shortage, At: 16 * time.Second, Length: 5 * time.Second, Member: 1, Other: 2, Amount: 2},
			{Kind: simplan.Clocks, At: 22 * time.Second, Length: 5 * time.Second, Amount: 4 * time.Second},
		}, false},
		"clocks, held": {[]simplan.Fault{{Kind: simplan.Clocks, At: 8 * time.Second, Length: 10 * time.Second, Amount: 2 * clocks.StepMax}}, false},
		"roll back":    {[]simplan.Fault{{Kind: simplan.RollBack, At: 5 * time.Second, Length: 8 * time.Second, Member: 1, Other: 2}}, true},
		"rename, all":  {[]simplan.Fault{{Kind: simplan.Rename, At: 5 * time.Second, Length: 2 * time.Second, Member: 1, Other: 2}}, true},
		"rename, one":  {[]simplan.Fault{{Kind: simplan.Rename, At: 5 * time.Second, Length: 2 * time.Second, Member: 1, Other: 2, Amount: 1}}, true},
		"two of five":  {[]simplan.Fault{{Kind: simplan.Kill, At: 5 * time.Second, Length: 10 * time.Second, Member: 1, Other: 2}, {Kind: simplan.HungDisk, At: 5 * time.Second, Length: 10 * time.Second, Member: 2, Other: 3}}, true},
		"backlog": {[]simplan.Fault{
			{Kind: simplan.Backlog, At: time.Second},
			{Kind: simplan.LoseDisk, At: 20 * time.Second, Length: simplan.LagMargin, Member: 1, Other: 2},
			{Kind: simplan.Narrow, At: 20 * time.Second, Length: simplan.BacklogLength, Member: 1, Other: 1, Amount: simplan.PaceMax},
		}, true},
		"clone": {[]simplan.Fault{{Kind: simplan.Clone, At: 5 * time.Second, Length: 8 * time.Second, Member: 1, Other: 2}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if row.isLong {
				kit.Long(t)
			}
			members := 3
			if name == "two of five" {
				members = 5
			}
			r := simulate1(t, simplan.Plan{Seed: 42, Members: members, Partitions: 4, Length: shortLength, Faults: row.faults})
			for _, f := range row.faults {
				if slices.Contains(mayMiss, f.Kind) && r.report.Effects[f.Kind] == 0 {
					t.Errorf("%v had no effect", &f)
				}
			}
		})
	}
}
