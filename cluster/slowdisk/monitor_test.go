package slowdisk

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// TestGroupThatLeftIsNotStuck: a leadership that could not be moved away counts no longer when the group has left the member,
// although the disk is still slow.
func TestGroupThatLeftIsNotStuck(t *testing.T) {
	t.Parallel()
	k := New(&Config{
		Latency: func() partition.LogLatency {
			return partition.LogLatency{Oldest: raftgroup.OldestWriteMax + time.Second}
		},
		Groups: func() map[fsm.PartitionID]*partition.Group { return nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	k.state(7).stuck = true
	if s := k.Stats(); s.Stuck != 1 {
		t.Fatalf("%d leaderships are stuck, want 1", s.Stuck)
	}
	k.check(t.Context(), time.Now())
	if s := k.Stats(); !s.Slow || s.Stuck != 0 {
		t.Errorf("slow %v, %d leaderships are stuck; want a slow disk and none", s.Slow, s.Stuck)
	}
}

// TestWellIsComparedWithTheDiskHere: a member has a disk to which a leadership moves if its writes are known to be faster. That of
// one that has written nothing is not, soon after the start.
func TestWellIsComparedWithTheDiskHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := New(&Config{})
		hung := raftgroup.Status{OldestWrite: raftgroup.OldestWriteMax + 1}
		check := func(name string, theirs raftgroup.Status, want bool) {
			t.Helper()
			if got := k.isWell(&theirs, &hung); got != want {
				t.Errorf("%s: got well %v, want %v", name, got, want)
			}
		}
		check("fast", raftgroup.Status{WriteMedian: time.Millisecond}, true)
		check("slow too", raftgroup.Status{WriteMedian: 110 * time.Millisecond}, false)
		check("hung too", hung, false)
		check("halted", raftgroup.Status{WriteMedian: time.Millisecond, Halted: true}, false)
		check("slow too, for too short a time for its median",
			raftgroup.Status{WriteMedian: time.Millisecond, OldestWrite: 100 * time.Millisecond}, false)
		check("fast, in a write", raftgroup.Status{WriteMedian: time.Millisecond, OldestWrite: 40 * time.Millisecond}, true)
		check("without writes after the start", raftgroup.Status{}, false)
		<-time.After(unknownFor)
		check("without writes later", raftgroup.Status{}, true)
	})
}

// TestDifferenceOfMediansMustLast: a leadership moves at once when a write does not return, and after 5 s when the median is high:
// when all disks become fast at once, the medians fall one after the other.
func TestDifferenceOfMediansMustLast(t *testing.T) {
	t.Parallel()
	var of groupState
	at := time.Now()
	check := func(name string, after time.Duration, enough bool, oldest time.Duration, want bool) {
		t.Helper()
		if got := of.isClear(at.Add(after), enough, oldest); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	check("hung", 0, true, raftgroup.OldestWriteMax+1, true)
	check("hung, the others too", 0, false, raftgroup.OldestWriteMax+1, false)
	check("slow", time.Second, true, 0, false)
	check("slow for almost long enough", time.Second+slowFor-1, true, 0, false)
	check("slow for long enough", time.Second+slowFor, true, 0, true)
	check("others slow meanwhile", 10*time.Second, false, 0, false)
	check("slow again", 11*time.Second, true, 0, false)
}
