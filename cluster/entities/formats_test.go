package entities

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/golden"
)

// queryFormats returns the arguments and replies of the queries about entities, by the number of the query kind.
func queryFormats() []golden.Format {
	return []golden.Format{
		{Name: "4 lookup, query", Of: EntityQuery{}},
		{Name: "4 lookup, reply", Of: fsm.Entity{}},
		{Name: "5 list, query", Of: listQuery{}},
		{Name: "5 list, reply", Of: []fsm.Entity(nil)},
		{Name: "6 counts, query", Of: countsQuery{}},
		{Name: "6 counts, reply", Of: []fsm.Counts(nil)},
		{Name: "8 load, query", Of: struct{}{}},
		{Name: "8 load, reply", Of: []int(nil)},
		{Name: "9 rules, query", Of: rulesQuery{}},
		{Name: "9 rules, reply", Of: []fsm.Rule(nil)},
		{Name: "12 namespace, query", Of: namespaceQuery{}},
		{Name: "12 namespace, reply", Of: fsm.Namespace{}},
		{Name: "13 namespaces, query", Of: namespacesQuery{}},
		{Name: "13 namespaces, reply", Of: []fsm.Namespace(nil)},
		{Name: "22 idle, query", Of: query.EntityIn{}},
		{Name: "22 idle, reply", Of: false},
		{Name: "24 subscriptions, query", Of: subscriptionsQuery{}},
		{Name: "24 subscriptions, reply", Of: []string(nil)},
	}
}

// TestQueryFormats checks that members of consecutive releases understand each other.
func TestQueryFormats(t *testing.T) {
	t.Parallel()
	formats, handlers := queryFormats(), make(rpc.Handlers)
	(&Manager{}).Register(handlers)
	for kind := range handlers {
		isFor := func(f golden.Format) bool { return strings.HasPrefix(f.Name, fmt.Sprintf("%d ", kind)) }
		if !slices.ContainsFunc(formats, isFor) {
			t.Errorf("query %d has no golden format", kind)
		}
	}
	golden.JSON(t, "testdata/queries.golden", formats, filter.Text("value"))
}
