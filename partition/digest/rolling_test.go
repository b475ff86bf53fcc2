package digest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// A checkpoint is made once, when the first entry behind its index is applied, also when the index itself was
// one of raft's own entries. An unknown digest becomes known again at the next epoch.
func TestCheckpointIsMadeOnceBehindItsIndex(t *testing.T) {
	t.Parallel()
	var c Rolling
	at := func(indexes ...uint64) (made []uint64) {
		previous := indexes[0]
		for _, i := range indexes[1:] {
			c.Checkpoint(previous, i)
			c.BeginEntry(&raft.Log{Index: i, Term: 3})
			c.EndEntry()
			previous = i
		}
		for _, p := range c.checkpoints {
			made = append(made, p.Index)
		}
		c.checkpoints = nil
		return made
	}
	for _, x := range []struct {
		applied, want []uint64
	}{
		{[]uint64{0, 1, 2, 4095}, nil},
		{[]uint64{4095, 4096}, nil},
		{[]uint64{4096, 4097}, []uint64{4096}},
		{[]uint64{4097, 4098}, nil},
		{[]uint64{8191, 8193}, []uint64{8192}}, // 8192 was a no-op
		{[]uint64{12288, 12290, 12291}, []uint64{12288}},
	} {
		if diff := cmp.Diff(x.want, at(x.applied...)); diff != "" {
			t.Errorf("%v: %s", x.applied, diff)
		}
	}
	c.Restore(State{Digest: 7, DigestTerm: 1})
	if got := at(12292, 16385, 65536, 65537, 69633); !slices.Equal(got, []uint64{69632}) {
		t.Errorf("after an upgrade: %v", got)
	}
	for i := range uint64(checkpointsMax + 5) {
		c.addCheckpoint(Checkpoint{Index: i})
	}
	if len(c.checkpoints) != checkpointsMax || c.checkpoints[0].Index != 5 {
		t.Errorf("%d kept from %d", len(c.checkpoints), c.checkpoints[0].Index)
	}
}

func TestComparisonNamesOutliersOfAMajority(t *testing.T) {
	t.Parallel()
	list := func(sums ...uint64) (l []Checkpoint) {
		for i, s := range sums {
			l = append(l, Checkpoint{Index: uint64(i+1) * CheckpointEntries, Term: 1, Digest: s, Version: digestVersion})
		}
		return l
	}
	old := list(9, 9)
	old[0].Version, old[1].Version = digestVersion+1, digestVersion+1
	for name, x := range map[string]struct {
		of     map[string][]Checkpoint
		voters int
		want   Difference
	}{
		"equal":          {map[string][]Checkpoint{"a": list(1, 2), "b": list(1, 2), "c": list(1)}, 3, Difference{}},
		"nothing":        {nil, 3, Difference{}},
		"other versions": {map[string][]Checkpoint{"a": list(1, 2), "b": old}, 3, Difference{}},
		"one alone": {
			map[string][]Checkpoint{"a": list(1, 2, 3), "b": list(1, 5, 6), "c": list(1, 2, 3)},
			3,
			Difference{Index: 8192, Majority: list(0, 2)[1], Outliers: []string{"b"}},
		},
		"two differ and the third is away":     {map[string][]Checkpoint{"a": list(1), "b": list(2)}, 3, Difference{Index: 4096}},
		"two of five agree against one":        {map[string][]Checkpoint{"a": list(1), "b": list(1), "c": list(2)}, 5, Difference{Index: 4096}},
		"three of five agree, two are alone":   {map[string][]Checkpoint{"a": list(1), "b": list(1), "c": list(2), "d": list(1), "e": list(3)}, 5, Difference{Index: 4096, Majority: list(1)[0], Outliers: []string{"c", "e"}}},
		"the first difference is what is told": {map[string][]Checkpoint{"a": list(1, 7), "b": list(2, 7), "c": list(2, 8)}, 3, Difference{Index: 4096, Majority: list(2)[0], Outliers: []string{"a"}}},
	} {
		if diff := cmp.Diff(x.want, Compare(x.of, x.voters)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// BenchmarkDigest measures the digest of an entry with one send of 1 KiB and with 200 of them.
func BenchmarkDigest(b *testing.B) {
	for _, commands := range []int{1, 200} {
		b.Run(fmt.Sprintf("commands=%d", commands), func(b *testing.B) {
			var c Rolling
			e := &raft.Log{Index: 1, Term: 1, Data: make([]byte, commands*1100)}
			r := fsm.Result{Sequence: 12345}
			b.ReportAllocs()
			for i := range b.N {
				c.Checkpoint(uint64(i), uint64(i)+1)
				c.BeginEntry(e)
				for range commands {
					c.AddResult(&r)
				}
				c.EndEntry()
			}
		})
	}
}
