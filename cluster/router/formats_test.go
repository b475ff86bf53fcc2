package router

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/golden"
)

// queryFormats returns the arguments and replies of the queries that the router answers itself, by the
// number of the query kind; package entities has the others. The messages of a peek are not JSON.
func queryFormats() []golden.Format {
	return []golden.Format{
		{Name: "3 status, query", Of: query.StatusQuery{}},
		{Name: "3 status, reply", Of: raftgroup.Status{}},
		{Name: "7 peek, query", Of: peekQuery{}},
		{Name: "10 state, query", Of: sessionStateQuery{}},
		{Name: "10 state, reply", Of: sessionStateReply{}},
		{Name: "11 sessions, query", Of: sessionsQuery{}},
		{Name: "11 sessions, reply", Of: []fsm.Session(nil)},
		{Name: "19 purgeable, query", Of: purgeableQuery{}},
		{Name: "19 purgeable, reply", Of: purgeableReply{}},
		{Name: "20 locks, query", Of: locksQuery{}},
		{Name: "20 locks, reply", Of: []fsm.Code(nil)},
		{Name: "25 catalog index, reply", Of: uint64(0)},
	}
}

// TestQueryFormats checks that members of consecutive releases understand each other.
func TestQueryFormats(t *testing.T) {
	t.Parallel()
	formats, handlers := queryFormats(), make(rpc.Handlers)
	entityHandlers := make(rpc.Handlers)
	newRouter(&entities.Manager{}).RegisterQueries(handlers)
	(&entities.Manager{}).Register(entityHandlers)
	for kind := range handlers {
		isFor := func(f golden.Format) bool { return strings.HasPrefix(f.Name, fmt.Sprintf("%d ", kind)) }
		if entityHandlers[kind] == nil && !slices.ContainsFunc(formats, isFor) {
			t.Errorf("query %d has no golden format", kind)
		}
	}
	golden.JSON(t, "testdata/queries.golden", formats, filter.Text("value"))
}
