package fsm_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// TestLimitsOfPlacementsHold: every limit of a member and a placement, met and passed by one.
func TestLimitsOfPlacementsHold(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return strings.Repeat("x", n) }
	member := func(change func(*fsm.Member)) fsm.Command {
		m := fsm.Member{ID: "m"}
		change(&m)
		return fsm.SetMember{Member: m}
	}
	members := func(n int) (list []fsm.MemberID) {
		for i := range n {
			list = append(list, fsm.MemberID(fmt.Sprint("m", i)))
		}
		return list
	}
	placed := func(n int) (list []fsm.Replica) {
		for _, m := range members(n) {
			list = append(list, fsm.Replica{Member: m, Number: 1})
		}
		return list
	}
	lists := func(n int) [][]fsm.MemberID {
		list := make([][]fsm.MemberID, n)
		for i := range list {
			list[i] = members(1)
		}
		return list
	}
	for _, c := range []struct {
		name    string
		command fsm.Command
		valid   bool
	}{
		{"id", member(func(m *fsm.Member) { m.ID = fsm.MemberID(text(256)) }), true},
		{"id", member(func(m *fsm.Member) { m.ID = fsm.MemberID(text(257)) }), false},
		{"id", member(func(m *fsm.Member) { m.ID = "" }), false},
		{"name", member(func(m *fsm.Member) { m.Name = text(64) }), true},
		{"name", member(func(m *fsm.Member) { m.Name = text(65) }), false},
		{"name", member(func(m *fsm.Member) { m.Name = "\xff" }), false},
		{"zone", member(func(m *fsm.Member) { m.Zone = text(64) }), true},
		{"zone", member(func(m *fsm.Member) { m.Zone = text(65) }), false},
		{"zone", member(func(m *fsm.Member) { m.Zone = "\xff" }), false},
		{"weight", member(func(m *fsm.Member) { m.Weight = 100 }), true},
		{"weight", member(func(m *fsm.Member) { m.Weight = 101 }), false},
		{"members", fsm.PlacePartition{Partition: 1, Members: members(16)}, true},
		{"members", fsm.PlacePartition{Partition: 1, Members: members(17)}, false},
		{"members", fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{}}, false},
		{"members", fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"a", "b", "a"}}, false},
		{"members", fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{""}}, false},
		{"members", fsm.PlacePartition{Partition: 0, Members: members(1)}, false},
		{"members", fsm.PlacePartition{Partition: 2, Members: members(1)}, false},
		{"replicas", fsm.PartitionPlaced{Partition: 1, Replicas: placed(16)}, true},
		{"replicas", fsm.PartitionPlaced{Partition: 1, Replicas: placed(17)}, false},
		{"replicas", fsm.PartitionPlaced{Partition: 1, Replicas: []fsm.Replica{}}, false},
		{"replicas", fsm.PartitionPlaced{Partition: 1, Replicas: append(placed(2), placed(1)...)}, false},
		{"replicas", fsm.PartitionPlaced{Partition: 0, Replicas: placed(1)}, false},
		{"replica", fsm.ReplaceReplica{Partition: 1, Replica: placed(1)[0]}, true},
		{"replica", fsm.ReplaceReplica{Partition: 1}, false},
		{"replica", fsm.ReplaceReplica{Replica: placed(1)[0]}, false},
		{"level", fsm.RaiseLevel{Level: 1}, true},
		{"level", fsm.RaiseLevel{}, false},
		{"cluster id", fsm.RenameCluster{ClusterID: text(256)}, true},
		{"cluster id", fsm.RenameCluster{ClusterID: text(257)}, false},
		{"cluster id", fsm.RenameCluster{}, false},
		{"partitions", fsm.AddPartitions{Partitions: lists(4096)}, true},
		{"partitions", fsm.AddPartitions{Partitions: lists(4097)}, false},
		{"partitions", fsm.AddPartitions{Partitions: lists(0)}, false},
		{"partitions", fsm.AddPartitions{Partitions: append(lists(1), members(16))}, true},
		{"partitions", fsm.AddPartitions{Partitions: append(lists(1), members(17))}, false},
	} {
		if p, ok := c.command.(fsm.PlacePartition); ok && p.Partition == 2 { // which partitions there are says the state
			_, apply := foundCatalog(t)
			if code := apply(p).Code; code != fsm.InvalidArgument {
				t.Errorf("%+v: %v", p, code)
			}
			continue
		}
		holdsLimit(t, c.name, c.command, c.valid)
	}
}

// TestMembersAreLimited: the catalog has a record of at most 1024 members. A known member can still
// be changed.
func TestMembersAreLimited(t *testing.T) {
	t.Parallel()
	c, apply := foundCatalog(t)
	for i := range 1024 {
		if res := apply(fsm.SetMember{Member: fsm.Member{ID: fsm.MemberID(fmt.Sprint(i * 7 % 1024)), Removed: i%2 == 0}}); res.Code != fsm.OK {
			t.Fatalf("number %d: %v", i, res.Code)
		}
	}
	if code := apply(fsm.SetMember{Member: fsm.Member{ID: "more"}}).Code; code != fsm.QuotaExceeded {
		t.Error(code)
	}
	if code := apply(fsm.SetMember{Member: fsm.Member{ID: "7", Weight: 3}}).Code; code != fsm.OK {
		t.Error(code)
	}
	if m, known := c.Member("7"); !known || m.Weight != 3 || len(c.Members()) != 1024 {
		t.Errorf("%+v of %d", m, len(c.Members()))
	}
	if m, known := c.Member("more"); known || m != (fsm.Member{ID: "more"}) {
		t.Errorf("%+v %v", m, known)
	}
}

// TestMovesAreLimited: successive abandoned moves leave at most 32 replicas, and the last one can
// always be completed.
func TestMovesAreLimited(t *testing.T) {
	t.Parallel()
	c, apply := foundCatalog(t)
	apply(fsm.PartitionFormed{Partition: 1})
	for i := range 31 { // m is the first of 32
		if code := apply(fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{fsm.MemberID(fmt.Sprint("m", i))}}).Code; code != fsm.OK {
			t.Fatalf("move %d: %v", i, code)
		}
	}
	before := c.Digest()
	if code := apply(fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"more"}}).Code; code != fsm.QuotaExceeded {
		t.Error(code)
	}
	if p := c.Partitions()[0]; len(p.Replicas) != 31 || len(p.Target) != 1 || p.Last != 32 {
		t.Errorf("%d replicas, target %v, last %d", len(p.Replicas), p.Target, p.Last)
	}
	if before == c.Digest() {
		t.Error("the digest does not cover the answers")
	}
	if code := apply(fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"m"}}).Code; code != fsm.OK {
		t.Error(code)
	}
	if code := apply(fsm.PartitionPlaced{Partition: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}).Code; code != fsm.OK {
		t.Error(code)
	}
	if p := c.Partitions()[0]; len(p.Replicas) != 1 || p.Target != nil || p.Last != 32 {
		t.Errorf("%+v", p)
	}
}

// TestReplicaNumbersAreNeverReused: after the highest number no further replica is added.
func TestReplicaNumbersAreNeverReused(t *testing.T) {
	t.Parallel()
	c, env := catalog.New(), fsm.Env{}
	apply := func(cmd fsm.Command) fsm.Code {
		env.Index++
		return c.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, cmd)).Code
	}
	last := fsm.Partition{ID: 1, Formed: true, Replicas: []fsm.Replica{{Member: "m", Number: math.MaxUint32 - 1}}}
	if code := apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{last}}); code != fsm.OK {
		t.Error(code)
	}
	if code := apply(fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"m", "a"}}); code != fsm.OK {
		t.Error(code)
	}
	want := c.Partitions()
	if code := apply(fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"m", "b"}}); code != fsm.QuotaExceeded {
		t.Error(code)
	}
	if diff := cmp.Diff(want, c.Partitions()); diff != "" {
		t.Error(diff)
	}
}

// TestPlacementIsReplacedAsItWasSeen: of two placements that were derived from the same record, the catalog takes one
// and refuses the other, until it is derived from the new record. A pause and the end of a move change the record too.
func TestPlacementIsReplacedAsItWasSeen(t *testing.T) {
	t.Parallel()
	c, apply := foundCatalog(t)
	apply(fsm.PartitionFormed{Partition: 1})
	seen := c.Partitions()[0].PlacementHash()
	place := func(seen uint64, paused bool, members ...fsm.MemberID) fsm.Code {
		return apply(fsm.PlacePartition{Partition: 1, Members: members, Paused: paused, Seen: seen}).Code
	}
	for i, step := range []func() fsm.Code{
		func() fsm.Code { return place(seen, false, "a") },
		func() fsm.Code { return place(c.Partitions()[0].PlacementHash(), true, "a") },
		func() fsm.Code { return place(0, false, "a") },
		func() fsm.Code {
			return apply(fsm.PartitionPlaced{Partition: 1, Replicas: c.Partitions()[0].Target}).Code
		},
	} {
		before := c.Partitions()[0]
		if code := step(); code != fsm.OK {
			t.Fatalf("step %d: %v", i, code)
		}
		after := c.Partitions()[0]
		if code := place(before.PlacementHash(), false, "b"); code != fsm.Stale {
			t.Errorf("step %d: the placement that was seen before is replaced: %v", i, code)
		}
		if diff := cmp.Diff(after, c.Partitions()[0]); diff != "" {
			t.Errorf("step %d: the refused command changed it: %s", i, diff)
		}
	}
	if code := place(c.Partitions()[0].PlacementHash(), false, "b"); code != fsm.OK {
		t.Errorf("derived again: %v", code)
	}
}
