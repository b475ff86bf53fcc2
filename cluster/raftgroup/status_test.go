package raftgroup_test

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
)

// TestDiskIsSlowComparedWithOthers: where all disks are equally slow, a write that takes many accesses is not the sign of a slow one.
func TestDiskIsSlowComparedWithOthers(t *testing.T) {
	t.Parallel()
	const fast, slow = 2 * time.Millisecond, 110 * time.Millisecond
	for _, c := range []struct {
		oldest, median, others time.Duration
		want                   bool
	}{
		{raftgroup.OldestWriteMax, 0, 0, false},
		{raftgroup.OldestWriteMax + 1, 0, 0, true},
		{raftgroup.OldestWriteMax + 1, fast, fast, true},
		{raftgroup.OldestWriteMax + 1, slow, slow, false},
		{20 * slow, slow, slow, false},
		{20*slow + 1, slow, slow, true},
		{0, raftgroup.WriteMedianMax, fast, false},
		{0, raftgroup.WriteMedianMax + 1, fast, true},
		{0, 10 * slow, slow, false},
		{0, 10*slow + 1, slow, true},
	} {
		s := raftgroup.Status{OldestWrite: c.oldest, WriteMedian: c.median}
		if got := s.HasSlowDisk(c.others); got != c.want {
			t.Errorf("oldest write %v, median %v, others %v: got slow %v, want %v", c.oldest, c.median, c.others, got, c.want)
		}
	}
}
