package quota

import (
	"fmt"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/topology"
)

// TestStatsShowABoundedNumberOfNamespaces: of 905 namespaces 900 are shown, those with limits among them, and the others are
// summed up.
func TestStatsShowABoundedNumberOfNamespaces(t *testing.T) {
	t.Parallel()
	const all = ShownMax + 5
	c := catalog.New()
	apply := func(command fsm.Command) fsm.Result {
		return c.Apply(fsm.Env{Now: 1}, fsm.AppendCommand(nil, fsm.Header{}, command))
	}
	apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}})
	own := Report{Led: map[fsm.NamespaceID]fsm.Usage{fsm.DefaultNamespace: {Messages: 1}}}
	for i := range all - 1 {
		var settings fsm.NamespaceSettings
		if i == all-2 {
			settings.RulesMax = 7
		}
		r := apply(fsm.CreateNamespace{Name: fmt.Sprintf("n%d", i), Settings: settings})
		if r.Code != fsm.OK {
			t.Fatal(r.Code)
		}
		own.Led[r.Namespace] = fsm.Usage{Messages: 1}
	}
	m := New(&Config{ViewCatalog: func(look func(*catalog.Machine)) { look(c) }})
	m.state.Store(&state{own: own})
	stats := m.Stats(true)
	rest := stats.Namespaces[len(stats.Namespaces)-1]
	if len(stats.Namespaces) != ShownMax+1 || stats.Omitted != all-ShownMax || rest.Name != "" || rest.Led.Messages != all-ShownMax {
		t.Errorf("%d rows, %d omitted, and together %+v", len(stats.Namespaces), stats.Omitted, rest)
	}
	if first := stats.Namespaces[0]; first.Limits.RulesMax != 7 || stats.Namespaces[1].Name != fsm.DefaultNamespaceName {
		t.Errorf("the first is %+v, then %s", first, stats.Namespaces[1].Name)
	}
	if n := m.Stats(false).Namespaces[0]; n.Limits.RulesMax != 0 || n.Led.Messages != 1 {
		t.Errorf("without the catalog: %+v", n)
	}
}

// What a namespace holds at this member stands beside its share, with the namespace that holds the most above its share at any
// member.
func TestHoldingsNameTheLargestNamespace(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	apply := func(command fsm.Command) fsm.Result {
		return c.Apply(fsm.Env{Now: 1}, fsm.AppendCommand(nil, fsm.Header{}, command))
	}
	apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}})
	greedy := apply(fsm.CreateNamespace{Name: "greedy"}).Namespace
	m := New(&Config{ViewCatalog: func(look func(*catalog.Machine)) { look(c) }})
	m.state.Store(&state{
		memory: holdings{held: map[fsm.NamespaceID]uint64{fsm.DefaultNamespace: 5}, share: 10},
		disk:   holdings{held: map[fsm.NamespaceID]uint64{fsm.DefaultNamespace: 6}, share: 0},
		over: map[fsm.NamespaceID]map[fsm.MemberID]Excess{
			fsm.DefaultNamespace: {"m": {Namespace: fsm.DefaultNamespace, Resource: Memory, Held: 30, Share: 10}},
			greedy:               {"n": {Namespace: greedy, Resource: Memory, Held: 40, Share: 15}},
		},
	})
	want := []topology.Holding{{Resource: "memory", Held: 5, Share: 10, Largest: "greedy"}, {Resource: "disk", Held: 6}}
	if got := m.Holdings(fsm.DefaultNamespace); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
