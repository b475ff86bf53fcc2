package entities

import (
	"context"
	"errors"
	"testing"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition"
)

// machineGroup is a group that only reads a state machine.
type machineGroup struct {
	rpc.Group

	machine partition.Machine
}

func (g machineGroup) Read(_ context.Context, look func(partition.Machine)) error {
	look(g.machine)
	return nil
}

// TestStartingClusterIsBusy checks that a catalog whose cluster is not bootstrapped yet does not report that
// namespaces and entities do not exist: clients and the command line wait.
func TestStartingClusterIsBusy(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	d := query.Replicas{Local: func(fsm.PartitionID) rpc.Group { return machineGroup{machine: c} }}
	_, byID := findNamespace.Answer(t.Context(), d, namespaceQuery{ID: fsm.DefaultNamespace})
	_, entity := FindEntity.Answer(t.Context(), d, EntityQuery{Namespace: fsm.DefaultNamespace, Name: "orders"})
	_, list := listEntities.Answer(t.Context(), d, listQuery{Namespace: fsm.DefaultNamespace, Max: 1})
	for _, err := range []error{byID, entity, list} {
		if !errors.Is(err, fsm.ServerBusy) {
			t.Errorf("before the bootstrap: %v", err)
		}
	}
	founded := fsm.AppendCommand(nil, fsm.Header{}, fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}})
	if result := c.Apply(fsm.Env{Now: 1}, founded); result.Code != fsm.OK {
		t.Fatal(result.Code)
	}
	if _, err := findNamespace.Answer(t.Context(), d, namespaceQuery{ID: fsm.DefaultNamespace}); err != nil {
		t.Errorf("after the bootstrap: %v", err)
	}
	if _, err := FindEntity.Answer(t.Context(), d, EntityQuery{Namespace: fsm.DefaultNamespace, Name: "orders"}); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("an entity that does not exist: %v", err)
	}
}

// TestQueriesForMessagesAreRefusedByTheCatalog checks that a query for a message partition that names the catalog is
// refused: the catalog has no queues.
func TestQueriesForMessagesAreRefusedByTheCatalog(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	c.Apply(fsm.Env{Now: 1}, fsm.AppendCommand(nil, fsm.Header{}, fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}}))
	d := query.Replicas{Local: func(fsm.PartitionID) rpc.Group { return machineGroup{machine: c} }}
	_, counts := countsOf.Answer(t.Context(), d, countsQuery{Partition: fsm.CatalogPartition})
	_, rules := listRules.Answer(t.Context(), d, rulesQuery{})
	_, idle := isIdle.Answer(t.Context(), d, query.EntityIn{})
	for _, err := range []error{counts, rules, idle} {
		if !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("got %v, want InvalidArgument", err)
		}
	}
}
