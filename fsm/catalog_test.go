package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// catalogScenario is one file of testdata/catalog.
type catalogScenario struct {
	t      *testing.T
	c      *catalog.Machine
	env    fsm.Env
	serial uint64
	last   []byte
}

// TestCatalogScenarios replays the scenarios in testdata/catalog.
func TestCatalogScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/catalog", func(t *testing.T, path string) {
		s := &catalogScenario{c: catalog.New(), env: fsm.Env{Now: 100_000}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return s.tell(d)
		})
	})
}

func (s *catalogScenario) tell(d *datadriven.TestData) string {
	switch d.Cmd {
	case "pass":
		s.env.Now += fsm.Instant(span(s.t, d.CmdArgs[0].Key))
		return s.apply(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
	case "retry":
		return s.apply(s.last)
	case "restore":
		return s.restore()
	case "host":
		return fmt.Sprintln(s.c.NamespaceByHost(d.CmdArgs[0].Key))
	case "namespaces":
		after := ""
		d.MaybeScanArgs(s.t, "after", &after)
		return namespaces(s.c.Namespaces(after, int(number(d, "max", 100))))
	case "access":
		own, all := s.c.Access(namespaceOf(d), d.CmdArgs[0].Key)
		return "own:" + rules(own) + "\nnamespace:" + rules(all) + "\n"
	case "members":
		return fmt.Sprintf("%+v\n", s.c.Members())
	case "lookup":
		if e, ok := s.c.Lookup(namespaceOf(d), d.CmdArgs[0].Key); ok {
			return entity(e)
		}
		return "not found\n"
	case "list":
		after := ""
		d.MaybeScanArgs(s.t, "after", &after)
		return entities(s.c.List(namespaceOf(d), kindOf(s.t, d), fsm.EntityID(number(d, "topic", 0)), after, int(number(d, "max", 100))))
	case "dropping":
		return entities(s.c.Dropping())
	case "level":
		if most := s.c.FormatLevelMax(); most != 0 {
			return fmt.Sprintf("%d, held at %d\n", s.c.FormatLevel(), most)
		}
		return fmt.Sprintln(s.c.FormatLevel())
	case "show":
		key := s.c.TokenKey()
		return fmt.Sprintf("cluster %q key %q\npartitions [%s]\nload %v\nentities %d\n",
			s.c.ClusterID(), key[:2], partitions(s.c.Partitions()), s.c.PartitionLoad(), s.c.Entities())
	}
	s.serial++
	h := fsm.Header{Incarnation: 1, Serial: s.serial, Low: s.serial}
	s.last = fsm.AppendCommand(nil, h, catalogCommand(s.t, d))
	return s.apply(s.last)
}

func (s *catalogScenario) apply(command []byte) string {
	s.env.Index++
	s.env.Now += 1000
	res := s.c.Apply(oneTime(s.env), command)
	switch {
	case res.Entity != 0:
		return fmt.Sprintf("%v, entity %d version %d\n", res.Code, res.Entity, res.Version)
	case res.Namespace != 0:
		return fmt.Sprintf("%v, namespace %d version %d\n", res.Code, res.Namespace, res.Version)
	case res.Version != 0:
		return fmt.Sprintf("%v, version %d\n", res.Code, res.Version)
	case res.Count != 0:
		return fmt.Sprintf("%v, %d\n", res.Code, res.Count)
	}
	return res.Code.String() + "\n"
}

func (s *catalogScenario) restore() string {
	var b bytes.Buffer
	if _, err := s.c.Image().WriteTo(&b); err != nil {
		s.t.Fatal(err)
	}
	c := catalog.New()
	if err := c.Restore(&b); err != nil {
		s.t.Fatal(err)
	}
	if c.Digest() != s.c.Digest() {
		s.t.Error("the restored machine is another")
	}
	s.c = c
	return "restored\n"
}

func catalogCommand(t *testing.T, d *datadriven.TestData) fsm.Command {
	id := fsm.EntityID(number(d, "entity", 1))
	settings := fsm.DefaultSettings()
	settings.MaxDeliveryCount = uint32(number(d, "deliveries", 10))
	switch d.Cmd {
	case "found":
		c := fsm.FoundCluster{ClusterID: "c1", TokenKey: [16]byte{'k', 'e'}}
		d.MaybeScanArgs(t, "cluster", &c.ClusterID)
		for i := range number(d, "partitions", 2) {
			c.Partitions = append(c.Partitions, fsm.Partition{
				ID:       fsm.PartitionID(i + 1),
				Replicas: []fsm.Replica{{Member: "m1", Number: uint32(i)}, {Member: "m2", Number: 7}},
			})
		}
		return c
	case "formed":
		return fsm.PartitionFormed{Partition: fsm.PartitionID(number(d, "partition", 1))}
	case "create":
		c := fsm.CreateEntity{
			Namespace: namespaceOf(d), Name: strings.TrimSuffix(d.Input, "\n"), Kind: kindOf(t, d), Settings: settings, Access: accessOf(t, d),
		}
		scanLimits(t, d, &c.Settings.MaxMessageBytes, &c.Settings.LockDuration)
		if c.Topic = fsm.EntityID(number(d, "topic", 0)); c.Kind != fsm.SubscriptionEntity {
			c.Partition = fsm.PartitionID(number(d, "partition", 1))
		}
		if d.HasArg("rule") {
			c.Rule = &fsm.Rule{Name: "r", Filter: sqlFilter("a = 1")}
		}
		return c
	case "update":
		settings.RequiresSession = d.HasArg("sessions")
		d.MaybeScanArgs(t, "forward", &settings.ForwardTo)
		scanLimits(t, d, &settings.MaxMessageBytes, &settings.LockDuration)
		return fsm.UpdateEntity{Entity: id, Settings: settings}
	case "delete":
		return fsm.DeleteEntity{Entity: id}
	case "forget":
		return fsm.ForgetEntity{Entity: id}
	case "close":
		return fsm.CloseReceiver{Incarnation: 1}
	}
	return spaceCommand(t, d)
}

// partitions prints the placement of each partition, whether it was formed, and its target.
func partitions(list []fsm.Partition) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = fmt.Sprintf("{%d %v %v}", p.ID, p.Replicas, p.Formed)
		if p.Target != nil {
			words[i] += fmt.Sprintf(" -> %v", p.Target)
		}
		if p.Paused {
			words[i] += " paused"
		}
	}
	return strings.Join(words, " ")
}

// kindOf reads the argument kind.
func kindOf(t *testing.T, d *datadriven.TestData) fsm.EntityKind {
	name := fsm.QueueEntity.String()
	d.MaybeScanArgs(t, "kind", &name)
	for kind := range fsm.SubscriptionEntity + 1 {
		if kind.String() == name {
			return kind
		}
	}
	t.Fatalf("%s: unknown kind %s", d.Pos, name)
	return 0
}

func entity(e fsm.Entity) string {
	out := fmt.Sprintf("%d %s in partition %d, version %d, %d deliveries, created %s, updated %s",
		e.ID, e.Name, e.Partition, e.Version, e.Settings.MaxDeliveryCount, at2s(e.Created), at2s(e.Updated))
	switch e.Kind {
	case fsm.TopicEntity:
		out += ", topic"
	case fsm.SubscriptionEntity:
		out += fmt.Sprintf(", subscription of %d", e.Topic)
	case fsm.QueueEntity:
	}
	if e.Rule != nil {
		out += ", rule " + e.Rule.Name
	}
	if e.Namespace != fsm.DefaultNamespace {
		out += fmt.Sprintf(", namespace %d", e.Namespace)
	}
	if len(e.Access) > 0 || e.AccessVersion > 1 {
		out += fmt.Sprintf(", access version %d:%s", e.AccessVersion, rules(e.Access))
	}
	if e.Dropping {
		out += ", dropping"
	}
	return out + "\n"
}

func entities(list []fsm.Entity) string {
	out := ""
	for _, e := range list {
		out += entity(e)
	}
	return out
}

// TestNamesOfEntitiesAreChecked: what may be a name and what may not, by creating it.
func TestNamesOfEntitiesAreChecked(t *testing.T) {
	t.Parallel()
	valid := []string{"a", "orders", "Orders.2", "a-b_c", "a/b", "a/b/c", "9", ".", strings.Repeat("n", 260)}
	invalid := []string{
		"", "/", "/a", "a/", "a b", "a$b", "q/$DeadLetterQueue", "$management", "a?", "a#", "a\\b", "a@b",
		"ä", "a\x00", "a\n", strings.Repeat("n", 261),
	}
	check := func(name string) fsm.Code {
		return fsm.Check(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: name, Partition: 1, Settings: fsm.DefaultSettings()})
	}
	for _, name := range valid {
		if code := check(name); code != fsm.OK {
			t.Errorf("%q: %v", name, code)
		}
	}
	for _, name := range invalid {
		if code := check(name); code != fsm.InvalidArgument {
			t.Errorf("%q: %v, want invalid argument", name, code)
		}
	}
}

// TestCatalogImageIsImmutable: changes after an image are not in it.
func TestCatalogImageIsImmutable(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	serial := uint64(0)
	apply := func(cmd fsm.Command) {
		t.Helper()
		serial++
		h := fsm.Header{Incarnation: 1, Serial: serial, Low: serial / 2}
		if res := c.Apply(oneTime(fsm.Env{Index: serial, Now: fsm.Instant(serial)}), fsm.AppendCommand(nil, h, cmd)); res.Code != fsm.OK {
			t.Fatalf("%T: %v", cmd, res.Code)
		}
	}
	partition := fsm.Partition{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}
	apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{partition}})
	settings := fsm.DefaultSettings()
	for _, name := range []string{"a", "b", "c"} {
		apply(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: name, Partition: 1, Settings: settings})
	}
	img := c.Image()
	var before, after bytes.Buffer
	if _, err := img.WriteTo(&before); err != nil {
		t.Fatal(err)
	}
	settings.MaxDeliveryCount = 3
	apply(fsm.UpdateEntity{Entity: 2, Settings: settings})
	apply(fsm.DeleteEntity{Entity: 1})
	apply(fsm.ForgetEntity{Entity: 1})
	apply(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "d", Partition: 1, Settings: settings})
	apply(fsm.PartitionFormed{Partition: 1})
	if _, err := img.WriteTo(&after); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Error("the image changed after it was taken")
	}
}

// TestSubscriptionsAreFoundByTheirNames: in all topics of one namespace, by both ends of their own
// names.
func TestSubscriptionsAreFoundByTheirNames(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	serial := uint64(0)
	apply := func(cmd fsm.Command) fsm.EntityID {
		serial++
		res := c.Apply(oneTime(fsm.Env{Index: serial, Now: 1}), fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: serial, Low: serial}, cmd))
		if res.Code != fsm.OK {
			t.Fatalf("%+v: %v", cmd, res.Code)
		}
		return res.Entity
	}
	apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}})
	settings := fsm.DefaultSettings()
	for _, topic := range []string{"events", "jms.x/news"} {
		id := apply(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: topic, Partition: 1, Settings: settings})
		for _, name := range []string{"JMS.a.Code", "jms.b.code", "jms.c.xcode", "other.code", "jms.code.d"} {
			apply(fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: id, Name: fsm.SubscriptionPath(topic, name), Settings: settings})
		}
	}
	want := []string{"events/Subscriptions/JMS.a.Code", "events/Subscriptions/jms.b.code", "jms.x/news/Subscriptions/JMS.a.Code", "jms.x/news/Subscriptions/jms.b.code"}
	if got := c.FindSubscriptions(fsm.DefaultNamespace, "jms.", ".CODE", 10); !slices.Equal(got, want) {
		t.Errorf("found %q", got)
	}
	if got := c.FindSubscriptions(fsm.DefaultNamespace, "jms.", ".code", 3); !slices.Equal(got, want[:3]) {
		t.Errorf("the first are %q", got)
	}
	if got := c.FindSubscriptions(fsm.DefaultNamespace+1, "jms.", ".code", 10); got != nil {
		t.Errorf("found %q in no namespace", got)
	}
}

// TestStoredSettingsAreComplete: what is stored is complete, and whether duplicates are detected is
// chosen once.
func TestStoredSettingsAreComplete(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	serial := uint64(0)
	apply := func(cmd fsm.Command) fsm.Result {
		serial++
		return c.Apply(oneTime(fsm.Env{Index: serial, Now: 1}), fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: serial, Low: serial}, cmd))
	}
	apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}})
	few := fsm.EntitySettings{LockDuration: 5000, MaxDeliveryCount: 1, MaxMessageBytes: 9}
	made := apply(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "a", Partition: 1, Settings: few})
	e, _ := c.ByID(made.Entity)
	if e.Settings != few.WithDefaults() || e.Settings.DefaultTimeToLive != fsm.Forever || e.Settings.MaxBytes != 1<<30 {
		t.Errorf("settings are %+v", e.Settings)
	}
	if res := apply(fsm.UpdateEntity{Entity: made.Entity, Settings: few}); res.Version != 1 {
		t.Errorf("the same settings make version %d", res.Version)
	}
	few.RequiresDuplicateDetection = true
	if res := apply(fsm.UpdateEntity{Entity: made.Entity, Settings: few}); res.Code != fsm.InvalidArgument {
		t.Errorf("turned on later: %v", res.Code)
	}
	few.RequiresDuplicateDetection, few.UserMetadata = false, "mine"
	if res := apply(fsm.UpdateEntity{Entity: made.Entity, Settings: few}); res.Code != fsm.OK || res.Version != 2 {
		t.Errorf("%+v", res)
	}
}
