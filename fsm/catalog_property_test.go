package fsm_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// catalogHistory draws commands and applies them to a catalog, to one that is restored from
// its own image every now and then, and to the model.
type catalogHistory struct {
	t      *rapid.T
	a, b   *catalog.Machine
	model  *catalogModel
	env    fsm.Env
	last   []byte
	answer fsm.Result
	frozen fsm.Image
	bytes  []byte // of frozen when it was taken
	used   map[fsm.PartitionID]map[uint32]fsm.MemberID
}

func (h *catalogHistory) do(c fsm.Command) {
	if code := fsm.Check(c); code != fsm.OK {
		h.t.Fatalf("%+v: %v", c, code)
	}
	h.env.Index++
	h.env.Now += fsm.Instant(rapid.IntRange(-500, 2000).Draw(h.t, "ms"))
	h.last = fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: h.env.Index, Low: h.env.Index}, c)
	h.answer = h.model.apply(h.env.Now, c)
	h.apply(fmt.Sprintf("%T %+v", c, c))
}

func (h *catalogHistory) apply(what string) {
	for i, c := range []*catalog.Machine{h.a, h.b} {
		if diff := cmp.Diff(h.answer, c.Apply(oneTime(h.env), h.last)); diff != "" {
			h.t.Fatalf("catalog %d answers %s otherwise than the model (-want +got):\n%s", i, what, diff)
		}
	}
}

// draw is one of some choices.
func draw[T any](h *catalogHistory, name string, of ...T) T {
	return rapid.SampledFrom(of).Draw(h.t, name)
}

func (h *catalogHistory) namespace() fsm.NamespaceID {
	return fsm.NamespaceID(rapid.Uint32Range(1, uint32(h.model.spaceLast)+1).Draw(h.t, "namespace"))
}

func (h *catalogHistory) entity() fsm.EntityID {
	last := uint64(h.model.entityLast)
	return fsm.EntityID(rapid.Uint64Range(last-min(last, 12), last+1).Draw(h.t, "entity"))
}

func (h *catalogHistory) rules() (list []fsm.AccessRule) {
	for _, name := range []string{"c", "a", "b"} {
		if rapid.Bool().Draw(h.t, name) {
			list = append(list, fsm.AccessRule{Name: name, Primary: draw(h, "secret", "p", "q"), Rights: draw(h, "rights", fsm.Send, fsm.Read, fsm.Manage)})
		}
	}
	return list
}

func (h *catalogHistory) spaceSettings() (s fsm.NamespaceSettings) {
	for _, host := range []string{"b.x", "a.x", "c.y"} {
		if rapid.IntRange(0, 3).Draw(h.t, host) == 0 {
			s.Hosts = append(s.Hosts, host)
		}
	}
	s.MessageBytesMax = draw[uint32](h, "size", 0, 0, 1<<20, 1000)
	s.LockDurationMax = draw[fsm.Millis](h, "lock", 0, 0, 5000, 24*3600_000)
	s.EntitiesMax = draw[uint32](h, "entities", 0, 0, 1, 3)
	s.BytesMax = draw[uint64](h, "stored", 0, 0, 1)
	s.MessagesMax = draw[uint64](h, "messages", 0, 0, 1)
	s.RulesMax = draw[uint64](h, "rules", 0, 0, 1)
	return s
}

func (h *catalogHistory) settings() fsm.EntitySettings {
	s := fsm.DefaultSettings()
	s.LockDuration = draw[fsm.Millis](h, "duration", 5000, 60_000, 300_000, 300_001)
	s.MaxMessageBytes = draw[uint32](h, "bytes", 1000, 1<<20, 2<<20)
	return s
}

func (h *catalogHistory) open(*rapid.T) {
	h.do(fsm.CreateNamespace{Name: draw(h, "name", "team", "Team", "default", "a", "b"), Settings: h.spaceSettings(), Access: h.rules()})
}

func (h *catalogHistory) limit(*rapid.T) {
	h.do(fsm.UpdateNamespace{Namespace: h.namespace(), Settings: h.spaceSettings()})
}

func (h *catalogHistory) shut(*rapid.T) { h.do(fsm.DeleteNamespace{Namespace: h.namespace()}) }

func (h *catalogHistory) allow(*rapid.T) {
	c := fsm.SetAccess{Namespace: h.namespace(), Version: rapid.Uint64Range(0, 4).Draw(h.t, "version"), Rules: h.rules()}
	if rapid.Bool().Draw(h.t, "of an entity") {
		c.Entity = h.entity()
		if e := h.model.entities[c.Entity]; e.Namespace != 0 && rapid.Bool().Draw(h.t, "there") {
			c.Namespace = e.Namespace
		}
	}
	h.do(c)
}

func (h *catalogHistory) create(*rapid.T) {
	h.do(fsm.CreateEntity{
		Namespace: h.namespace(), Kind: draw(h, "kind", fsm.QueueEntity, fsm.TopicEntity), Name: draw(h, "name", "q", "Q", "t", "a/b"),
		Partition: draw[fsm.PartitionID](h, "partition", 1, 2), Settings: h.settings(), Access: h.rules(),
	})
}

func (h *catalogHistory) subscribe(*rapid.T) {
	topic := h.entity()
	e := h.model.entities[topic]
	name := e.Name
	if name == "" || e.Kind == fsm.SubscriptionEntity || rapid.IntRange(0, 9).Draw(h.t, "other") == 0 {
		name = "t"
	}
	h.do(fsm.CreateEntity{
		Namespace: draw(h, "namespace", 0, e.Namespace, 1), Kind: fsm.SubscriptionEntity, Topic: max(topic, 1),
		Name: fsm.SubscriptionPath(name, draw(h, "name", "s", "S", "u")), Settings: h.settings(),
	})
}

func (h *catalogHistory) update(*rapid.T) {
	h.do(fsm.UpdateEntity{Entity: h.entity(), Settings: h.settings()})
}
func (h *catalogHistory) delete(*rapid.T) { h.do(fsm.DeleteEntity{Entity: h.entity()}) }
func (h *catalogHistory) forget(*rapid.T) { h.do(fsm.ForgetEntity{Entity: h.entity()}) }

func (h *catalogHistory) member() fsm.MemberID {
	return draw[fsm.MemberID](h, "member", "m1", "m2", "m3", "m4", "m5")
}

func (h *catalogHistory) describe(*rapid.T) {
	h.do(fsm.SetMember{Member: fsm.Member{
		ID: h.member(), Zone: draw(h, "zone", "", "east"), Drained: rapid.IntRange(0, 3).Draw(h.t, "drained") == 0,
		Removed: rapid.IntRange(0, 9).Draw(h.t, "removed") == 0,
	}})
}

func (h *catalogHistory) place(*rapid.T) {
	c := fsm.PlacePartition{Partition: draw[fsm.PartitionID](h, "partition", 1, 2), Paused: rapid.Bool().Draw(h.t, "paused")}
	switch rapid.IntRange(0, 3).Draw(h.t, "seen") {
	case 0:
		c.Seen = h.model.partitions[c.Partition-1].PlacementHash()
	case 1:
		c.Seen = 7 // another placement
	}
	for range rapid.IntRange(1, 3).Draw(h.t, "replicas") {
		if m := h.member(); !slices.Contains(c.Members, m) {
			c.Members = append(c.Members, m)
		}
	}
	h.do(c)
}

// placed is said by a leader that knows the target, or another one.
func (h *catalogHistory) placed(*rapid.T) {
	id := draw[fsm.PartitionID](h, "partition", 1, 2)
	p := h.model.partitions[id-1]
	replicas := draw(h, "reached", p.Target, p.Target, p.Target, p.Replicas)
	if replicas == nil {
		replicas = p.Replicas
	}
	if len(replicas) <= 16 {
		h.do(fsm.PartitionPlaced{Partition: id, Replicas: replicas})
	}
}

// replace is said of a replica that the partition has, or had, or will have.
func (h *catalogHistory) replace(*rapid.T) {
	id := draw[fsm.PartitionID](h, "partition", 1, 2)
	p := h.model.partitions[id-1]
	c := fsm.ReplaceReplica{Partition: id, Replica: draw(h, "replica", p.Replicas...)}
	if p.Target != nil && rapid.Bool().Draw(h.t, "of the target") {
		c.Replica = draw(h, "replica", p.Target...)
	}
	if rapid.IntRange(0, 3).Draw(h.t, "another") == 0 {
		c.Replica.Number++
	}
	h.do(c)
}

func (h *catalogHistory) form(*rapid.T) {
	h.do(fsm.PartitionFormed{Partition: draw[fsm.PartitionID](h, "partition", 1, 2)})
}

func (h *catalogHistory) hold(*rapid.T) {
	h.do(fsm.HoldLevel{Max: draw[uint32](h, "hold", 0, 0, 1, 2, 3)})
}

func (h *catalogHistory) raise(*rapid.T) {
	h.do(fsm.RaiseLevel{Level: draw[uint32](h, "level", 1, 2, 3, 4)})
}

func (h *catalogHistory) retry(*rapid.T) {
	if h.last != nil {
		h.apply("a command seen before")
	}
}

func (h *catalogHistory) restore(*rapid.T) {
	var b bytes.Buffer
	if _, err := h.b.Image().WriteTo(&b); err != nil {
		h.t.Fatal(err)
	}
	next := catalog.New()
	if err := next.Restore(&b); err != nil {
		h.t.Fatal(err)
	}
	h.b = next
}

// freeze takes an image, which must not change from then on.
func (h *catalogHistory) freeze(*rapid.T) {
	h.thaw()
	var b bytes.Buffer
	h.frozen = h.a.Image()
	if _, err := h.frozen.WriteTo(&b); err != nil {
		h.t.Fatal(err)
	}
	h.bytes = b.Bytes()
}

func (h *catalogHistory) thaw() {
	if h.frozen == nil {
		return
	}
	var b bytes.Buffer
	if _, err := h.frozen.WriteTo(&b); err != nil || !bytes.Equal(b.Bytes(), h.bytes) {
		h.t.Fatalf("an image changed after it was taken (%v)", err)
	}
}

func (h *catalogHistory) Check(*rapid.T) {
	if h.a.Digest() != h.b.Digest() {
		h.t.Fatal("the restored catalog holds another state")
	}
	for _, c := range []*catalog.Machine{h.a, h.b} {
		h.same("namespaces", len(h.model.spaces), len(c.Namespaces("", 1000)))
		for id := fsm.NamespaceID(1); id <= h.model.spaceLast+1; id++ {
			h.checkSpace(c, id)
		}
		for id := fsm.EntityID(1); id <= h.model.entityLast+1; id++ {
			e, found := c.ByID(id)
			want, exists := h.model.entities[id]
			h.same("entity", want, e)
			h.same("entity is there", exists, found)
		}
		for _, host := range []string{"a.x", "B.X", "c.y", "team.x", "Team", "a", "b.y", "default.x", "zzz"} {
			h.same("host "+host, h.model.byHost(host), c.NamespaceByHost(host))
		}
		h.same("partitions", h.model.partitions, c.Partitions())
		members := map[fsm.MemberID]fsm.Member{}
		for _, m := range c.Members() {
			members[m.ID] = m
		}
		h.same("members", h.model.members, members)
		h.same("level", h.model.level, c.FormatLevel())
		h.same("level held", h.model.levelMax, c.FormatLevelMax())
	}
	h.checkNumbers()
}

func (h *catalogHistory) checkSpace(c *catalog.Machine, id fsm.NamespaceID) {
	n, found := c.NamespaceByID(id)
	want, exists := h.model.spaces[id]
	h.same("namespace", want, n)
	h.same("namespace is there", exists, found)
	for kind := range fsm.SubscriptionEntity + 1 {
		h.same("list", h.model.list(id, kind), c.List(id, kind, 0, "", 1000))
	}
	for _, path := range []string{"q", "T", "t/subscriptions/s", "t/subscriptions/zzz", "a/b"} {
		e, _ := h.model.find(id, path)
		rules := e.Access
		if e.Topic != 0 {
			rules = h.model.entities[e.Topic].Access
		}
		own, all := c.Access(id, path)
		h.same("rules of "+path, rules, own)
		h.same("rules of the namespace", want.Access, all)
	}
}

func (h *catalogHistory) same(what string, want, got any) {
	if reflect.DeepEqual(want, got) { // far cheaper
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		h.t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// checkNumbers: a number of a replica was never another member's.
func (h *catalogHistory) checkNumbers() {
	for _, p := range h.a.Partitions() {
		if h.used[p.ID] == nil {
			h.used[p.ID] = map[uint32]fsm.MemberID{}
		}
		for member, number := range holders(p) {
			if of, known := h.used[p.ID][number]; known && of != member {
				h.t.Fatalf("number %d of partition %d was that of %s and is that of %s", number, p.ID, of, member)
			}
			h.used[p.ID][number] = member
		}
	}
}

// TestCatalogsAgree applies random histories to a catalog, to one that is restored in between and
// to the model: all answers and states are equal, and images do not change.
func TestCatalogsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		founding := fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{
			{ID: 1, Formed: true, Replicas: []fsm.Replica{{Member: "m1", Number: 1}, {Member: "m2", Number: 2}}},
			{ID: 2, Replicas: []fsm.Replica{{Member: "m3", Number: 1}}},
		}}
		h := &catalogHistory{
			t: rt, a: catalog.New(), b: catalog.New(), env: fsm.Env{Now: 1_000_000}, model: newCatalogModel(founding, 1_000_000),
			used: map[fsm.PartitionID]map[uint32]fsm.MemberID{},
		}
		h.last = fsm.AppendCommand(nil, fsm.Header{}, founding)
		h.apply("the founding")
		h.last = nil
		actions := map[string]func(*rapid.T){
			"open": h.open, "limit": h.limit, "shut": h.shut, "allow": h.allow, "create": h.create, "create more": h.create,
			"subscribe": h.subscribe, "update": h.update, "delete": h.delete, "forget": h.forget, "forget more": h.forget,
			"describe": h.describe, "place": h.place, "placed": h.placed, "replace": h.replace, "form": h.form, "raise": h.raise, "hold": h.hold,
			"retry": h.retry, "restore": h.restore, "freeze": h.freeze, "": h.Check,
		}
		for name, action := range actions {
			actions[name] = func(t *rapid.T) { h.t = t; action(t) }
		}
		rt.Repeat(actions)
		h.thaw()
	})
}
