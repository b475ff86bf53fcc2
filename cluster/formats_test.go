package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/golden"
)

// queryFormats are the arguments and replies of all queries, by the number of the kind. Members
// of neighbouring releases speak them with each other. Messages of a peek are no JSON.
func queryFormats() []golden.Format {
	return []golden.Format{
		{Name: "1 hello, query", Of: helloQuery{}},
		{Name: "1 hello, reply", Of: helloReply{}},
		{Name: "2 pledge, query", Of: pledgeQuery{}},
		{Name: "2 pledge, reply", Of: false},
		{Name: "14 placement, query", Of: placementQuery{}},
		{Name: "14 placement, reply", Of: placement.Record{}},
		{Name: "15 depart, query", Of: replicaRemovedQuery{}},
		{Name: "15 depart, reply", Of: struct{}{}},
		{Name: "16 digest, query", Of: digestQuery{}},
		{Name: "16 digest, reply", Of: uint64(0)},
		{Name: "17 verify, query", Of: verifyQuery{}},
		{Name: "17 verify, reply", Of: Verification{}},
		{Name: "18 checkpoints, query", Of: checkpointsQuery{}},
		{Name: "18 checkpoints, reply", Of: checkpointsReply{}},
	}
}

// TestQueryFormats: members of neighbouring releases understand each other. The other queries have their
// golden formats in package router.
func TestQueryFormats(t *testing.T) {
	t.Parallel()
	formats := queryFormats()
	for _, kind := range []rpc.QueryKind{
		rpc.QueryHello, rpc.QueryPledge, rpc.QueryPlacement, rpc.QueryReplicaRemoved, rpc.QueryDigest, rpc.QueryVerify, rpc.QueryCheckpoints,
	} {
		isFor := func(f golden.Format) bool { return strings.HasPrefix(f.Name, fmt.Sprintf("%d ", kind)) }
		if !slices.ContainsFunc(formats, isFor) {
			t.Errorf("query %d has no golden format", kind)
		}
	}
	golden.JSON(t, "testdata/queries.golden", formats, filter.Text("value"))
}

// TestValuesOfRules: the values of filters and parameters, of every kind, encode themselves.
func TestValuesOfRules(t *testing.T) {
	t.Parallel()
	var written []byte
	for _, value := range []filter.Value{
		{},
		filter.Bool(true), filter.Int(-7), filter.Double(0.5), filter.Text("text"), filter.Text("\xff"),
		filter.Time(1_700_000_000_000), filter.ID(filter.GUID{1, 15: 2}), filter.Binary([]byte{0, 255}),
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		written = append(append(written, text...), '\n')
		var read filter.Value
		if err := json.Unmarshal(text, &read); err != nil || read != value {
			t.Errorf("%s is decoded as %v, %v", text, read, err)
		}
	}
	golden.Compare(t, "testdata/values.golden", written)
}

// TestMemberFile: the identity of a member stays readable, and is written as it was.
func TestMemberFile(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/identity.golden", []golden.Format{{Name: "member.json", Of: identity{}}})

	const member = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	want := identity{Version: identityVersion, Member: member, Cluster: "c", Pledge: []fsm.MemberID{member}, Bootstrapping: true, Level: 3}
	dir := t.TempDir()
	f := &dataDir{dir: dir, identity: want}
	if err := f.save(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "member.json"))
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/member.json", written)
	if err := os.WriteFile(f.logPath(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read := &dataDir{dir: dir}
	if err := read.load(); err != nil || !reflect.DeepEqual(read.identity, want) {
		t.Errorf("read %+v, %v", read.identity, err)
	}
}
