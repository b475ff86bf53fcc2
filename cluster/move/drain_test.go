package move

import (
	"testing"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
)

// TestDrainWaitsUntilNothingCanMakeTheMemberALeader checks that a drain is complete when nothing can make the member a leader any more, not when it
// happens to lead nothing.
func TestDrainWaitsUntilNothingCanMakeTheMemberALeader(t *testing.T) {
	t.Parallel()
	const drained, other, known = "a", "b", 100
	part := &fsm.Partition{ID: 1, Replicas: []fsm.Replica{{Member: drained}, {Member: other}}}
	elsewhere := &fsm.Partition{ID: 2, Replicas: []fsm.Replica{{Member: other}}}
	for _, c := range []struct {
		name   string
		part   *fsm.Partition
		status leaderReply
		led    bool
		want   bool
	}{
		{"it leads", part, leaderReply{member: drained}, true, true},
		{"another leads", part, leaderReply{member: other, Status: raftgroup.Status{Catalog: known}}, true, false},
		{"another leads that does not say what it knows", part, leaderReply{member: other}, true, false},
		{"another is handing over", part, leaderReply{member: other, Status: raftgroup.Status{Transferring: true, Catalog: known}}, true, true},
		{"another leads that does not know of the drain yet", part, leaderReply{member: other, Status: raftgroup.Status{Catalog: known - 1}}, true, true},
		{"nobody leads", part, leaderReply{}, false, true},
		{"nobody leads what it does not hold", elsewhere, leaderReply{}, false, false},
	} {
		if got := mayLead(drained, c.part, &c.status, c.led, known); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
