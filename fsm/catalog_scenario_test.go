package fsm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/peeklock/peeklock/fsm"
)

// spaceCommand returns commands about namespaces, access rules and placement.
func spaceCommand(t *testing.T, d *datadriven.TestData) fsm.Command {
	settings := fsm.NamespaceSettings{EntitiesMax: uint32(number(d, "entities", 0))}
	if d.HasArg("host") {
		settings.Hosts = words(t, d, "host")
	}
	scanLimits(t, d, &settings.MessageBytesMax, &settings.LockDurationMax)
	switch d.Cmd {
	case "open":
		c := fsm.CreateNamespace{Settings: settings, Access: accessOf(t, d)}
		d.ScanArgs(t, "name", &c.Name)
		return c
	case "limit":
		return fsm.UpdateNamespace{Namespace: namespaceOf(d), Settings: settings}
	case "shut":
		return fsm.DeleteNamespace{Namespace: namespaceOf(d)}
	case "allow":
		return fsm.SetAccess{
			Namespace: namespaceOf(d), Entity: fsm.EntityID(number(d, "entity", 0)), Version: number(d, "version", 0), Rules: accessOf(t, d),
		}
	case "member":
		m := fsm.Member{ID: membersOf(words(t, d, "id"))[0], Weight: uint32(number(d, "weight", 0)), Drained: d.HasArg("drained"), Removed: d.HasArg("removed")}
		d.MaybeScanArgs(t, "zone", &m.Zone)
		return fsm.SetMember{Member: m}
	case "place":
		return fsm.PlacePartition{Partition: fsm.PartitionID(number(d, "partition", 1)), Members: membersOf(words(t, d, "on")), Paused: d.HasArg("paused")}
	case "replace":
		member, n, _ := strings.Cut(words(t, d, "replica")[0], "/")
		count, err := strconv.ParseUint(n, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return fsm.ReplaceReplica{Partition: fsm.PartitionID(number(d, "partition", 1)), Replica: fsm.Replica{Member: fsm.MemberID(member), Number: uint32(count)}}
	case "placed":
		c := fsm.PartitionPlaced{Partition: fsm.PartitionID(number(d, "partition", 1))}
		for _, word := range words(t, d, "on") {
			member, n, _ := strings.Cut(word, "/")
			count, err := strconv.ParseUint(n, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			c.Replicas = append(c.Replicas, fsm.Replica{Member: fsm.MemberID(member), Number: uint32(count)})
		}
		return c
	case "raise":
		return fsm.RaiseLevel{Level: uint32(number(d, "to", 2))}
	case "hold":
		return fsm.HoldLevel{Max: uint32(number(d, "at", 0))}
	case "grow":
		var c fsm.AddPartitions
		for range number(d, "by", 1) {
			c.Partitions = append(c.Partitions, membersOf(words(t, d, "on")))
		}
		return c
	}
	t.Fatalf("%s: unknown step %s", d.Pos, d.Cmd)
	return nil
}

// words are the values of an argument: name=(a,b).
func words(t *testing.T, d *datadriven.TestData, name string) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == name {
			return arg.Vals
		}
	}
	t.Fatalf("%s: no %s", d.Pos, name)
	return nil
}

func membersOf(names []string) []fsm.MemberID {
	list := make([]fsm.MemberID, len(names))
	for i, name := range names {
		list[i] = fsm.MemberID(name)
	}
	return list
}

// accessOf reads rules like access=(name/secret/rights).
func accessOf(t *testing.T, d *datadriven.TestData) (list []fsm.AccessRule) {
	if !d.HasArg("access") {
		return nil
	}
	for _, word := range words(t, d, "access") {
		part := strings.Split(word, "/")
		rights := map[string]fsm.Rights{"send": fsm.Send, "listen": fsm.Listen, "manage": fsm.Manage, "odd": 4}[part[2]]
		list = append(list, fsm.AccessRule{Name: part[0], Primary: part[1], Rights: rights})
	}
	return list
}

func rules(list []fsm.AccessRule) (out string) {
	for _, a := range list {
		out += fmt.Sprintf(" %s/%s/%d created %s updated %s", a.Name, a.Primary, a.Rights, at2s(a.Created), at2s(a.Updated))
	}
	return out
}

func namespaces(list []fsm.Namespace) (out string) {
	for _, n := range list {
		out += fmt.Sprintf("%d %s %+v version %d created %s updated %s%s\n", n.ID, n.Name, n.Settings, n.Version, at2s(n.Created), at2s(n.Updated), rules(n.Access))
	}
	return out
}

func namespaceOf(d *datadriven.TestData) fsm.NamespaceID {
	return fsm.NamespaceID(number(d, "namespace", uint64(fsm.DefaultNamespace)))
}

// scanLimits reads what a namespace limits, of an entity or of the namespace.
func scanLimits(t *testing.T, d *datadriven.TestData, size *uint32, lock *fsm.Millis) {
	*size = uint32(number(d, "size", uint64(*size)))
	if d.HasArg("lock") {
		*lock = span(t, words(t, d, "lock")[0])
	}
}
