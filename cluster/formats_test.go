package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/quota"
	"github.com/peeklock/peeklock/cluster/reconcile"
	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// queryFormats returns the arguments and replies of all queries, by the number of the kind. Members of
// neighbouring releases exchange them. Messages of a peek are not JSON.
func queryFormats() []golden.Format {
	return []golden.Format{
		{Name: "1 hello, query", Of: bootstrap.HelloRequest{}},
		{Name: "1 hello, reply", Of: bootstrap.Hello{}},
		{Name: "2 pledge, query", Of: bootstrap.PledgeRequest{}},
		{Name: "2 pledge, reply", Of: false},
		{Name: "14 placement, query", Of: placementQuery{}},
		{Name: "14 placement, reply", Of: placement.Record{}},
		{Name: "15 depart, query", Of: reconcile.RemovedQuery{}},
		{Name: "15 depart, reply", Of: struct{}{}},
		{Name: "16 digest, query", Of: compare.DigestRequest{}},
		{Name: "16 digest, reply", Of: uint64(0)},
		{Name: "17 verify, query", Of: compare.VerifyRequest{}},
		{Name: "17 verify, reply", Of: topology.Verification{}},
		{Name: "18 checkpoints, query", Of: compare.CheckpointsRequest{}},
		{Name: "18 checkpoints, reply", Of: compare.Checkpoints{}},
		{Name: "21 replace, query", Of: replicas.ReplaceQuery{}},
		{Name: "21 replace, reply", Of: struct{}{}},
		{Name: "23 campaign, query", Of: partition.Question{}},
		{Name: "23 campaign, reply", Of: partition.Verdict(0)},
		{Name: "26 usage, query", Of: struct{}{}},
		{Name: "26 usage, reply", Of: quota.Report{}},
		{Name: "30 rates, query", Of: topology.RatesQuery{}},
		{Name: "30 rates, reply", Of: []topology.EntityRates(nil)},
	}
}

// TestQueryFormats checks that members of neighbouring releases understand each other's queries. The golden
// formats of the other queries are in package router.
func TestQueryFormats(t *testing.T) {
	t.Parallel()
	formats := queryFormats()
	for _, kind := range []rpc.QueryKind{
		rpc.QueryHello, rpc.QueryPledge, rpc.QueryPlacement, rpc.QueryReplicaRemoved, rpc.QueryDigest, rpc.QueryVerify, rpc.QueryCheckpoints, rpc.QueryReplaceReplica,
		rpc.QueryCampaign, rpc.QueryUsage, rpc.QueryRates,
	} {
		isFor := func(f golden.Format) bool { return strings.HasPrefix(f.Name, fmt.Sprintf("%d ", kind)) }
		if !slices.ContainsFunc(formats, isFor) {
			t.Errorf("query %d has no golden format", kind)
		}
	}
	golden.JSON(t, "testdata/queries.golden", formats, filter.Text("value"))
}

// TestValuesOfRules checks that the values of filters and parameters, of every kind, have their encoding.
func TestValuesOfRules(t *testing.T) {
	t.Parallel()
	var written []byte
	for _, value := range []filter.Value{
		{},
		filter.Bool(true), filter.Int(-7), filter.Double(0.5), filter.Text("text"), filter.Text("\xff"),
		filter.Time(1_700_000_000_000), filter.ID(filter.GUID{1, 15: 2}), filter.Binary([]byte{0, 255}),
	} {
		text := kit.Must(json.Marshal(value))(t)
		written = append(append(written, text...), '\n')
		var read filter.Value
		if err := json.Unmarshal(text, &read); err != nil || read != value {
			t.Errorf("%s is decoded as %v, %v", text, read, err)
		}
	}
	golden.Compare(t, "testdata/values.golden", written)
}
