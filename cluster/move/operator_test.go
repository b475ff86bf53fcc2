package move

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// contendedCatalog is a catalog to which another operator writes before each of the next commands.
type contendedCatalog struct {
	Node
	Router

	catalog *catalog.Machine
	env     fsm.Env
	others  []fsm.MemberID // where the other one moves partition 1, one after the other
}

func (c *contendedCatalog) apply(command fsm.Command) (fsm.Result, error) {
	c.env.Index++
	result := c.catalog.Apply(c.env, fsm.AppendCommand(nil, fsm.Header{}, command))
	if result.Code != fsm.OK {
		return result, result.Code
	}
	return result, nil
}

func (c *contendedCatalog) Command(_ context.Context, _ fsm.PartitionID, command fsm.Command) (fsm.Result, error) {
	if len(c.others) > 0 {
		other := c.others[0]
		c.others = c.others[1:]
		if _, err := c.apply(fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{other}}); err != nil {
			return fsm.Result{}, err
		}
	}
	return c.apply(command)
}

func (c *contendedCatalog) Placement(context.Context, fsm.PartitionID) (placement.Record, error) {
	return placement.Record{Partitions: c.catalog.Partitions(), Members: c.catalog.Members(), Level: c.catalog.FormatLevel()}, nil
}

func (c *contendedCatalog) Lookup(fsm.MemberID) (gossip.Member, bool) { return gossip.Member{}, true }

func (c *contendedCatalog) Processes() []gossip.Member { return nil }

func (c *contendedCatalog) Alive() []fsm.MemberID { return []fsm.MemberID{"a", "b", "c", "d"} }

func (c *contendedCatalog) AwaitLeader(context.Context, fsm.PartitionID) (fsm.MemberID, error) {
	return "", fsm.ServerBusy
}

func (c *contendedCatalog) Status(context.Context, fsm.MemberID, fsm.PartitionID) (raftgroup.Status, error) {
	return raftgroup.Status{}, fsm.ServerBusy
}

func newContended(t *testing.T, others ...fsm.MemberID) (*contendedCatalog, *Operator) {
	t.Helper()
	c := &contendedCatalog{catalog: catalog.New()}
	for _, command := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: testReplicas("a")}}},
		fsm.PartitionFormed{Partition: 1},
		fsm.RaiseLevel{Level: fsm.FormatLevel},
	} {
		kit.Must(c.apply(command))(t)
	}
	c.others = others
	return c, &Operator{Config{Node: c, Router: c}}
}

func (c *contendedCatalog) target() []fsm.MemberID {
	return placement.Members(placement.Settled(c.catalog.Partitions())[0].Replicas)
}

// TestPlansOverwriteNoOtherPlacement: what was planned from a placement is refused when an operator has changed that
// placement meanwhile, also in the moment before the command.
func TestPlansOverwriteNoOtherPlacement(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(o *Operator, seen *placement.Record) error{
		"a rebalance": func(o *Operator, _ *placement.Record) error {
			return o.Rebalance(t.Context(), []topology.PlannedMove{{Partition: 1, From: []fsm.MemberID{"a"}, To: []fsm.MemberID{"b"}}})
		},
		"a replacement": func(o *Operator, seen *placement.Record) error {
			return o.moveAsSeen(t.Context(), seen, 1, []fsm.MemberID{"b"})
		},
	} {
		c, o := newContended(t)
		seen := kit.Must(c.Placement(t.Context(), 1))(t)
		c.others = []fsm.MemberID{"c"}
		want := map[string]fsm.Code{"a rebalance": fsm.PreconditionFails, "a replacement": fsm.Stale}[name]
		if err := run(o, &seen); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if got := c.target(); !slices.Equal(got, []fsm.MemberID{"c"}) {
			t.Errorf("%s: partition 1 moves to %v", name, got)
		}
	}
}

// TestCommandsReadAgainWhenThePlacementHasChanged: a command of an operator that finds another placement than it has read reads
// again, and gives up when that happens again and again.
func TestCommandsReadAgainWhenThePlacementHasChanged(t *testing.T) {
	t.Parallel()
	c, o := newContended(t, "c")
	if err := o.Move(t.Context(), 1, []fsm.MemberID{"b"}); err != nil || !slices.Equal(c.target(), []fsm.MemberID{"b"}) {
		t.Errorf("moves to %v: %v", c.target(), err)
	}
	c.others = []fsm.MemberID{"d"}
	if err := o.PauseMove(t.Context(), 1); err != nil || !slices.Equal(c.target(), []fsm.MemberID{"d"}) || !c.catalog.Partitions()[0].Paused {
		t.Errorf("the paused move is to %v: %v", c.target(), err)
	}
	for range placementReadsMax {
		c.others = append(c.others, "a", "c")
	}
	if err := o.Move(t.Context(), 1, []fsm.MemberID{"b"}); !errors.Is(err, fsm.ServerBusy) || slices.Equal(c.target(), []fsm.MemberID{"b"}) {
		t.Errorf("moves to %v: %v", c.target(), err)
	}
}
