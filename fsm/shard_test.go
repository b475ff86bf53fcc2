package fsm_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// shardedCatalog has a partitioned topic with a subscription (ids 2-4 and 5-7) between
// two plain queues (1 and 8).
func shardedCatalog(t *testing.T) (*catalog.Machine, func(fsm.Command) fsm.Result) {
	t.Helper()
	c, env := catalog.New(), fsm.Env{Now: 1_700_000_000_000}
	apply := func(cmd fsm.Command) fsm.Result {
		env.Index++
		env.Now += 1000
		h := fsm.Header{Incarnation: 7, Serial: env.Index, Low: env.Index}
		return c.Apply(oneTime(env), fsm.AppendCommand(nil, h, cmd))
	}
	founding := fsm.FoundCluster{ClusterID: "c1"}
	for i := range 4 {
		founding.Partitions = append(founding.Partitions, fsm.Partition{
			ID: fsm.PartitionID(i + 1), Replicas: []fsm.Replica{{Member: "m", Number: 1}},
		})
	}
	settings := fsm.DefaultSettings()
	spread := settings
	spread.EnablePartitioning = true
	for _, cmd := range []fsm.Command{
		founding,
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "before", Partition: 2, Settings: settings},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: "Events", Partition: 3, Settings: spread, Partitions: []fsm.PartitionID{3, 1, 2}},
		fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: 3, Name: "events/subscriptions/all", Settings: settings},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "behind", Partition: 4, Settings: settings},
	} {
		if res := apply(cmd); res.Code != fsm.OK {
			t.Fatalf("%T: %v", cmd, res.Code)
		}
	}
	return c, apply
}

func restored(t *testing.T, c *catalog.Machine) *catalog.Machine {
	t.Helper()
	var b bytes.Buffer
	if _, err := c.Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "image-catalog-partitioned", b.Bytes())
	again := catalog.New()
	if err := again.Restore(&b); err != nil || again.Digest() != c.Digest() {
		t.Fatalf("restored to another machine: %v", err)
	}
	return again
}

// A partitioned entity is one entity, found by the id of any shard, and each of its shards adds to
// the load of its partition; a subscription is placed with its topic.
func TestShardsHaveConsecutiveIDs(t *testing.T) {
	t.Parallel()
	made, apply := shardedCatalog(t)
	for _, c := range []*catalog.Machine{made, restored(t, made)} {
		topic, _ := c.Lookup(fsm.DefaultNamespace, "events")
		subscription, _ := c.Lookup(fsm.DefaultNamespace, "Events/Subscriptions/ALL")
		want := []fsm.Shard{{Partition: 3, Entity: 2}, {Partition: 1, Entity: 3}, {Partition: 2, Entity: 4}}
		if diff := cmp.Diff(want, topic.Shards); diff != "" || topic.ID != 2 || topic.Partition != 3 {
			t.Errorf("topic %d in %d: %s", topic.ID, topic.Partition, diff)
		}
		for i := range want {
			want[i].Entity += 3
		}
		if diff := cmp.Diff(want, subscription.Shards); diff != "" || subscription.Topic != 2 {
			t.Errorf("subscription of %d: %s", subscription.Topic, diff)
		}
		for id, name := range []string{1: "before", 2: "Events", 3: "Events", 4: "Events", 7: "Events/Subscriptions/all", 8: "behind"} {
			if e, found := c.ByID(fsm.EntityID(id)); name != "" && (!found || e.Name != name) {
				t.Errorf("id %d is of %q", id, e.Name)
			}
		}
		if _, found := c.ByID(9); found {
			t.Error("an entity that was not made is found")
		}
		if shard, found := topic.ShardOf(4); shard != 2 || !found {
			t.Errorf("entity 4 is shard %d, %v", shard, found)
		}
		if _, found := topic.ShardOf(5); found {
			t.Error("a shard of another is found")
		}
		if diff := cmp.Diff([]int{2, 3, 2, 1}, c.PartitionLoad()); diff != "" || c.Entities() != 4 {
			t.Errorf("%d entities, load %s", c.Entities(), diff)
		}
	}
	// By the id of a shard it is deleted and forgotten, as a whole.
	for _, cmd := range []fsm.Command{fsm.DeleteEntity{Entity: 4}, fsm.ForgetEntity{Entity: 3}} {
		if res := apply(cmd); res.Code != fsm.OK {
			t.Errorf("%T: %v", cmd, res.Code)
		}
	}
	if diff := cmp.Diff([]int{0, 1, 0, 1}, made.PartitionLoad()); diff != "" || len(made.Dropping()) != 0 || made.Entities() != 2 {
		t.Errorf("%d entities are left, load %s", made.Entities(), diff)
	}
}

// What cannot be partitioned is refused, and whether an entity is cannot be changed.
func TestInvalidShardsAreRefused(t *testing.T) {
	t.Parallel()
	_, apply := shardedCatalog(t)
	spread := fsm.DefaultSettings()
	spread.EnablePartitioning = true
	many := make([]fsm.PartitionID, fsm.ShardsMax+1)
	for i := range many {
		many[i] = fsm.PartitionID(i + 1)
	}
	create := fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: spread}
	for name, change := range map[string]func(*fsm.CreateEntity){
		"none":          func(*fsm.CreateEntity) {},
		"not the first": func(c *fsm.CreateEntity) { c.Partitions = []fsm.PartitionID{2, 1} },
		"twice":         func(c *fsm.CreateEntity) { c.Partitions = []fsm.PartitionID{1, 2, 1} },
		"the catalog":   func(c *fsm.CreateEntity) { c.Partitions = []fsm.PartitionID{1, 0} },
		"unknown":       func(c *fsm.CreateEntity) { c.Partitions = []fsm.PartitionID{1, 5} },
		"too many":      func(c *fsm.CreateEntity) { c.Partitions = many },
		"a subscription": func(c *fsm.CreateEntity) {
			c.Name, c.Kind, c.Topic, c.Partition = "events/subscriptions/x", fsm.SubscriptionEntity, 2, 0
		},
	} {
		c := create
		change(&c)
		if code := apply(c).Code; code != fsm.InvalidArgument {
			t.Errorf("%s: %v", name, code)
		}
	}
	plain := create
	plain.Partitions, plain.Settings = []fsm.PartitionID{1}, fsm.DefaultSettings()
	if code := fsm.Check(plain); code != fsm.InvalidArgument { // its bytes have no room for them
		t.Errorf("without the setting: %v", code)
	}
	for name, cmd := range map[string]fsm.UpdateEntity{
		"partitioned later":             {Entity: 1, Settings: spread},
		"not any more":                  {Entity: 2, Settings: fsm.DefaultSettings()},
		"the subscription is by itself": {Entity: 5, Settings: spread},
	} {
		if code := apply(cmd).Code; code != fsm.InvalidArgument {
			t.Errorf("%s: %v", name, code)
		}
	}
	if res := apply(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: spread, Partitions: []fsm.PartitionID{1, 2, 3, 4}}); res.Code != fsm.OK || res.Entity != 9 {
		t.Errorf("%+v", res)
	}
	if res := apply(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "r", Partition: 1, Settings: fsm.DefaultSettings()}); res.Entity != 13 {
		t.Errorf("the next is entity %d", res.Entity)
	}
}

// The partitions of a partitioned entity are part of the command that makes it.
func TestPartitionedEntityFormat(t *testing.T) {
	t.Parallel()
	settings := exampleSettings()
	settings.EnablePartitioning, settings.AutoDeleteOnIdle = true, fsm.Forever
	want := fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "orders", Partition: 3, Settings: settings, Partitions: []fsm.PartitionID{3, 1, 300}}
	b := fsm.AppendCommand(nil, header, want)
	golden(t, "command-CreateEntity-partitioned", b)
	_, got, err := fsm.DecodeCommand(b)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for n := range b {
		if _, _, err := fsm.DecodeCommand(slices.Clone(b[:n])); err == nil {
			t.Errorf("%d of %d bytes are a command", n, len(b))
		}
	}
}
