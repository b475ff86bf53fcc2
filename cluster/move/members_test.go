package move

import (
	"context"
	"errors"
	"testing"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition"
)

// leadingNode is the leader of the catalog, with one status after the other.
type leadingNode struct {
	Node
	Router

	statuses []raftgroup.Status
	asked    int
}

func (n *leadingNode) AwaitLeader(context.Context, fsm.PartitionID) (fsm.MemberID, error) {
	return "A", nil
}

func (n *leadingNode) Status(context.Context, fsm.MemberID, fsm.PartitionID) (raftgroup.Status, error) {
	status := n.statuses[n.asked]
	n.asked++
	status.IsLeader = true
	return status, nil
}

// TestRemovalWaitsForACommittedConfiguration checks that a member counts as removed from the catalog only when the
// configuration without it is committed: until then the change can be lost, and the vote of the member is needed.
func TestRemovalWaitsForACommittedConfiguration(t *testing.T) {
	t.Parallel()
	r := testReplicas("A", "B")
	leader := &leadingNode{statuses: []raftgroup.Status{
		{Voters: votersOf(r...)},
		{Voters: votersOf(r[0]), Uncommitted: true},
		{Voters: votersOf(r[0]), Nonvoters: []partition.Voter{voterOf(r[1])}},
		{Voters: votersOf(r[0])},
	}}
	o := &Operator{Config{Node: leader, Router: leader}}
	if err := o.awaitRemovedFromCatalog(t.Context(), "B"); err != nil || leader.asked != len(leader.statuses) {
		t.Errorf("ends after %d of %d statuses: %v", leader.asked, len(leader.statuses), err)
	}
}

// forgetfulCatalog is a contendedCatalog whose gossip knows nobody.
type forgetfulCatalog struct{ *contendedCatalog }

func (forgetfulCatalog) Lookup(fsm.MemberID) (gossip.Member, bool) { return gossip.Member{}, false }

func (forgetfulCatalog) AwaitCatalog(context.Context, func(*catalog.Machine) bool) {}

// TestForgottenMemberCanBeRemoved checks that a member that holds replicas can be listed and marked although it has no
// record in the catalog and gossip has forgotten it, and that others cannot.
func TestForgottenMemberCanBeRemoved(t *testing.T) {
	t.Parallel()
	c, _ := newContended(t)
	forgetful := forgetfulCatalog{c}
	o := &Operator{Config{Node: forgetful, Router: forgetful}}
	list, err := o.Members(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "a" {
		t.Errorf("the members are %v: %v", list, err)
	}
	drain := func(m *fsm.Member) { m.Drained = true }
	if err := o.UpdateMember(t.Context(), "a", drain); err != nil {
		t.Errorf("the member with a replica: %v", err)
	}
	if err := o.UpdateMember(t.Context(), "b", drain); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("a member that nobody knows: %v", err)
	}
}
