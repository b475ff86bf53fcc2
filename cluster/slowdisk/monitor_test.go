package slowdisk

import (
	"log/slog"
	"testing"
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
