package fsm_test

import (
	"bytes"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// TestTamperedCatalogImageIsRefused restores an image of a catalog with each of its bytes changed:
// it is refused, or makes a working state machine that writes the same image.
func TestTamperedCatalogImageIsRefused(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if _, err := exampleCatalog(t).Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	refused, taken := 0, 0
	for i := range b.Len() - 4 {
		for _, change := range []byte{1, 2, 0x80, 0xff} {
			image := bytes.Clone(b.Bytes())
			image[i] ^= change
			image = sealed(image)
			c := catalog.New()
			if err := c.Restore(bytes.NewReader(image)); err != nil {
				refused++
				continue
			}
			taken++
			exerciseCatalog(t, c, image)
		}
	}
	if refused == 0 || taken == 0 {
		t.Errorf("%d images are refused, %d taken", refused, taken)
	}
}

// exerciseCatalog uses a restored catalog in every way. None must panic.
func exerciseCatalog(t *testing.T, c *catalog.Machine, image []byte) {
	t.Helper()
	var again bytes.Buffer
	if _, err := c.Image().WriteTo(&again); err != nil || !bytes.Equal(again.Bytes(), image) {
		t.Errorf("the image of the restored catalog is another (%v)", err)
	}
	env := fsm.Env{Index: 1, Now: 1 << 50}
	apply := func(cmd fsm.Command) { c.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, cmd)) }
	for _, n := range c.Namespaces("", 1000) {
		c.NamespaceByHost(n.Name + ".x")
		for kind := range fsm.SubscriptionEntity + 1 {
			for _, e := range c.List(n.ID, kind, 0, "", 10) {
				c.Access(n.ID, e.Name)
				apply(fsm.SetAccess{Namespace: n.ID, Entity: e.ID, Rules: []fsm.AccessRule{{Name: "z", Primary: "p", Rights: fsm.Send}}})
				apply(fsm.UpdateEntity{Entity: e.ID, Settings: fsm.DefaultSettings()})
			}
		}
	}
	for _, p := range c.Partitions() {
		apply(fsm.PlacePartition{Partition: p.ID, Members: []fsm.MemberID{"other", p.Replicas[0].Member}})
		apply(fsm.PartitionPlaced{Partition: p.ID, Replicas: p.Replicas})
	}
	for _, cmd := range exampleSpaces() {
		apply(cmd)
	}
	for id := fsm.EntityID(1); id < 10; id++ {
		apply(fsm.DeleteEntity{Entity: id})
		apply(fsm.ForgetEntity{Entity: id})
	}
	for id := fsm.NamespaceID(1); id < 5; id++ {
		apply(fsm.CreateEntity{Namespace: id, Name: "n", Partition: 1, Settings: fsm.DefaultSettings()})
		apply(fsm.DeleteNamespace{Namespace: id})
	}
}

// TestContradictoryImageIsRefused: an image that reads well and contradicts itself is refused.
func TestContradictoryImageIsRefused(t *testing.T) {
	t.Parallel()
	c, apply := foundCatalog(t) // partition 1 on m, number 1
	rules := []fsm.AccessRule{{Name: "r1", Primary: "p", Rights: fsm.Send}, {Name: "r2", Primary: "p", Rights: fsm.Send}}
	for _, cmd := range []fsm.Command{
		fsm.CreateNamespace{Name: "n2", Settings: fsm.NamespaceSettings{Hosts: []string{"aa.x"}}, Access: rules},
		fsm.CreateNamespace{Name: "n3", Settings: fsm.NamespaceSettings{Hosts: []string{"bb.x"}}},
		queueIn(2, "q1"), queueIn(2, "q2"), queueIn(3, "q1"),
		fsm.PartitionFormed{Partition: 1},
		fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"k"}},
		fsm.SetMember{Member: fsm.Member{ID: "g", Removed: true}},
		fsm.SetMember{Member: fsm.Member{ID: "e"}},
	} {
		if code := apply(cmd).Code; code != fsm.OK {
			t.Fatalf("%T: %v", cmd, code)
		}
	}
	var b bytes.Buffer
	if _, err := c.Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ name, old, changed string }{
		{"nothing", "", ""},
		{"two hosts of one name", "bb.x", "aa.x"},
		{"two namespaces of one name", "n3", "N2"},
		{"another default one", "\x01\x07default", "\x04\x07default"},
		{"a default one of another name", "default", "defaulx"},
		{"two queues of one name", "q2", "Q1"},
		{"rules out of order", "r1", "r3"},
		{"two rules of one name", "r1", "r2"},
		{"members out of order", "\x01g\x00", "\x01b\x00"},
		{"a removed member that holds something", "\x01g\x00", "\x01k\x00"},
		{"two replicas of one member", "\x01k\x02", "\x01m\x02"},
		{"a number that was never given", "\x01k\x02", "\x01k\x03"},
		{"a namespace that is not there", "\x03\x03\x00\x00\x02q1", "\x03\x04\x00\x00\x02q1"},
	} {
		image := bytes.Replace(b.Bytes(), []byte(x.old), []byte(x.changed), 1)
		if x.old != "" && bytes.Equal(image, b.Bytes()) {
			t.Errorf("%s: the image has no %q", x.name, x.old)
		}
		if err := catalog.New().Restore(bytes.NewReader(sealed(image))); (err == nil) != (x.old == "") {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
