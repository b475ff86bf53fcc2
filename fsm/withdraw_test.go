package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// While space is short, one of several access rules can be withdrawn, and none can be added or changed.
func TestWithdrawingAccessRulesIsNoGrowth(t *testing.T) {
	t.Parallel()
	a, b := fsm.AccessRule{Name: "a", Primary: "1", Rights: fsm.Send}, fsm.AccessRule{Name: "b", Primary: "2", Rights: fsm.Listen}
	changed := b
	changed.Primary = "3"
	c := catalog.New()
	queue := fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: fsm.DefaultSettings()}
	for i, cmd := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}},
		queue,
		fsm.SetAccess{Namespace: fsm.DefaultNamespace, Rules: []fsm.AccessRule{a, b}},
		fsm.SetAccess{Namespace: fsm.DefaultNamespace, Entity: 1, Rules: []fsm.AccessRule{b}},
	} {
		if res := c.Apply(oneTime(fsm.Env{Index: uint64(i + 1)}), fsm.AppendCommand(nil, fsm.Header{}, cmd)); res.Code != fsm.OK {
			t.Fatalf("%T: %v", cmd, res.Code)
		}
	}
	for _, x := range []struct {
		name    string
		command fsm.Command
		want    bool
	}{
		{"one of two", fsm.SetAccess{Namespace: 1, Rules: []fsm.AccessRule{b}}, true},
		{"the same", fsm.SetAccess{Namespace: 1, Rules: []fsm.AccessRule{b, a}}, true},
		{"all of an entity", fsm.SetAccess{Namespace: 1, Entity: 1}, true},
		{"another key", fsm.SetAccess{Namespace: 1, Rules: []fsm.AccessRule{changed}}, false},
		{"a rule of the namespace for an entity", fsm.SetAccess{Namespace: 1, Entity: 1, Rules: []fsm.AccessRule{a}}, false},
		{"of a namespace that does not exist", fsm.SetAccess{Namespace: 9}, false},
		{"of an entity that does not exist", fsm.SetAccess{Namespace: 1, Entity: 9}, false},
		{"another command", queue, false},
	} {
		if got := c.Withdraws(fsm.AppendCommand(nil, fsm.Header{}, x.command)); got != x.want {
			t.Errorf("%s: %t, want %t", x.name, got, x.want)
		}
	}
}
