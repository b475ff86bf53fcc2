package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/partition"
)

// failing returns the names of the checks that are not OK.
func failing(checks []Check) (names []string) {
	for _, c := range checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// TestMemberIsNotReadyWhileOthersHearTheLeader: a member is not ready without a catalog, or while another member hears the
// leader of the catalog and it does not.
func TestMemberIsNotReadyWhileOthersHearTheLeader(t *testing.T) {
	t.Parallel()
	state := State{}
	m := New(&Config{
		Replicas: replicas.New(&replicas.Config{}), State: func() State { return state },
		DiskSpace: func() (space partition.DiskSpace) { return space },
	})
	if bad := failing(m.Readiness()); !slices.Equal(bad, []string{"catalog"}) {
		t.Errorf("without a catalog, the failing checks are %v, want catalog", bad)
	}
	state.Loaded = true
	for _, othersHear := range []bool{true, false} {
		m.othersHearLeader.Store(othersHear)
		if bad := failing(m.Readiness()); othersHear != slices.Equal(bad, []string{"catalog"}) || !othersHear && bad != nil {
			t.Errorf("others hear the leader: %v; the failing checks are %v", othersHear, bad)
		}
	}
}

// TestStuckMemberIsNotLive checks that something that has not returned for 30 s calls for a restart, unless it waits for
// disk space.
func TestStuckMemberIsNotLive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stalled, owed time.Duration
		full          bool
		want          string
	}{
		{0, 0, false, ""},
		{stuckTimeout, stuckTimeout, false, ""},
		{stuckTimeout + time.Second, 0, false, "log"},
		{0, stuckTimeout + time.Second, false, "raft"},
		{stuckTimeout + time.Second, stuckTimeout + time.Second, true, ""},
	} {
		m := New(&Config{
			LogStats:  func() partition.LogStats { return partition.LogStats{Stalled: c.stalled} },
			DiskSpace: func() partition.DiskSpace { return partition.DiskSpace{ReadOnly: c.full} },
		})
		m.unanswered.Store(int64(c.owed))
		bad := failing(m.Liveness())
		if strings.Join(bad, ",") != c.want {
			t.Errorf("stalled %s, owed %s, full %v: %v", c.stalled, c.owed, c.full, bad)
		}
	}
}
