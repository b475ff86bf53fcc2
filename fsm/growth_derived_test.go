package fsm_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// growthSlack is how much an image can grow, in bytes, because numbers in it rise.
const growthSlack = 8

// grown are the kinds whose commands store data although they are never refused, with the reason.
func grown() map[fsm.Kind]string {
	return map[fsm.Kind]string{
		fsm.KindPutEntity:      "performs a CreateEntity, which can be refused",
		fsm.KindAcceptSession:  "the session ends with its lock if it has neither messages nor a state",
		fsm.KindFoundCluster:   "once in the life of a cluster",
		fsm.KindSetMember:      "members and operators only, up to a limit; space may come from it",
		fsm.KindAddPartitions:  "operators only, up to a limit",
		fsm.KindPlacePartition: "operators and the leader only; space may come from it",
	}
}

// growthQueues is a machine with an entity of each kind and messages in all states.
type growthQueues struct {
	*between
	locks    []fsm.LockID // of queue 1: locked, deferred, dead-lettered
	sequence fsm.SequenceNumber
	session  fsm.SessionLock // of queue 2
}

func newGrowthQueues(t *testing.T) *growthQueues {
	t.Helper()
	g := &growthQueues{between: newBetween(t)}
	g.put(1, 1, nil)
	g.send(1, 6, fsm.Message{Payload: []byte("hello")})
	for _, d := range g.must(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 3, MaxBytes: 1 << 20}).Deliveries {
		g.locks = append(g.locks, d.Lock)
	}
	g.must(fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: g.locks[1], Verb: fsm.Defer}, {Lock: g.locks[2], Verb: fsm.DeadLetter}}})
	g.sequence = g.must(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("later"), EnqueueAt: g.env.Now + 1_000_000}}}).Sequence
	g.put(2, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	g.send(2, 1, fsm.Message{Session: "s", HasSession: true})
	g.session = g.must(fsm.AcceptSession{Entity: 2, Named: true, ID: "s"}).Session
	g.must(fsm.SetSessionState{Entity: 2, Lock: g.session, State: []byte("state")})
	g.must(fsm.PutEntity{Entity: 3, Version: 1, Kind: fsm.TopicEntity, Settings: fsm.DefaultSettings()})
	g.must(fsm.PutEntity{Entity: 4, Version: 1, Kind: fsm.SubscriptionEntity, Topic: 3, Settings: fsm.DefaultSettings()})
	g.put(5, 1, onward)
	g.send(5, 2, fsm.Message{Payload: []byte("far")})
	g.put(6, 1, func(s *fsm.EntitySettings) { s.EnablePartitioning, s.AutoDeleteOnIdle = true, idleShardTime })
	return g
}

// stored is what the entities store, as the quotas of namespaces count it on disk.
func (g *growthQueues) stored() (sum int) {
	g.q.EachUsage(0, 100, func(_ fsm.EntityID, u fsm.Usage) { sum += int(u.DiskBytes + u.Rules) })
	return sum
}

func (g *growthQueues) samples() []fsm.Command {
	at := fsm.Address{Entity: 1}
	settle := func(s fsm.Settlement) fsm.SettleMessages {
		s.Lock = g.locks[0]
		return fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{s}}
	}
	return []fsm.Command{
		fsm.Pulse{},
		fsm.PutEntity{Entity: 9, Version: 1, Settings: fsm.DefaultSettings()},
		fsm.DropEntity{Entity: 1},
		fsm.Touch{Entity: 1},
		fsm.PutRule{Subscription: 4, Rule: fsm.Rule{Name: "r", Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}}},
		fsm.DropRule{Subscription: 4, Name: "$Default"},
		fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("more")}}},
		fsm.LockMessages{Address: at, Max: 1, MaxBytes: 1 << 20},
		fsm.FetchDeferred{Address: at, Sequences: []fsm.SequenceNumber{g.locks[1].Sequence}},
		fsm.FetchReady{Address: at, Seen: []fsm.LockID{{Sequence: 4}}},
		settle(fsm.Settlement{Verb: fsm.Complete}), settle(fsm.Settlement{Verb: fsm.Abandon}), settle(fsm.Settlement{Verb: fsm.Abandon, Properties: []byte{0xa1, 1, 'k', 0x41}}),
		fsm.RenewLocks{Address: at, Locks: g.locks[:1]},
		fsm.CloseReceiver{Incarnation: 1, Receiver: 1},
		fsm.ReserveNumbers{Entity: 1, Count: 5},
		fsm.CancelScheduled{Entity: 1, Sequences: []fsm.SequenceNumber{g.sequence}},
		fsm.PurgeMessages{Address: at, Max: 1},
		fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{g.locks[2].Sequence}},
		fsm.SettleUnlocked{Address: at, Verb: fsm.Complete, States: fsm.SetOf(fsm.Deferred), Sequences: []fsm.SequenceNumber{g.locks[1].Sequence}},
		fsm.AcceptSession{Entity: 2, Named: true, ID: "another"},
		fsm.RenewSession{Entity: 2, Lock: g.session},
		fsm.ReleaseSession{Entity: 2, Lock: g.session},
		fsm.SetSessionState{Entity: 2, Lock: g.session, State: []byte("a longer state")},
		fsm.SetSessionState{Entity: 2, Lock: g.session, Clear: true},
		fsm.Transact{Sends: []fsm.SendMessages{{Entity: 1, Messages: []fsm.Message{{Payload: []byte("more")}}}}},
		fsm.Transact{Settles: []fsm.SettleMessages{settle(fsm.Settlement{Verb: fsm.Complete})}},
		take(5, 1), transferOf(1, carried("from elsewhere")),
		fsm.BeginEpoch{Epoch: 7},
		fsm.RaiseLevel{Level: 1},
	}
}

// growthCatalog is a catalog with a namespace, a queue, a deleted queue and a partition.
type growthCatalog struct {
	t     *testing.T
	c     *catalog.Machine
	index uint64
}

func newGrowthCatalog(t *testing.T) *growthCatalog {
	t.Helper()
	g := &growthCatalog{t: t, c: catalog.New()}
	for _, c := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}, {Member: "n", Number: 2}}}}},
		fsm.PartitionFormed{Partition: 1},
		fsm.CreateNamespace{Name: "shop", Settings: fsm.NamespaceSettings{UserMetadata: "some text"}},
		fsm.CreateNamespace{Name: "gone"},
		queueIn(2, "orders"), queueIn(2, "gone"),
		fsm.DeleteEntity{Entity: 2},
		fsm.SetAccess{Namespace: 2, Rules: growthRules("a")},
		fsm.SetMember{Member: fsm.Member{ID: "n", Name: "host", Weight: 100}},
		fsm.SetMember{Member: fsm.Member{ID: "o", Name: "host", Weight: 100}},
	} {
		if code := g.do(c); code != fsm.OK {
			t.Fatalf("%T: %v", c, code)
		}
	}
	return g
}

func growthRules(names ...string) (rules []fsm.AccessRule) {
	for _, name := range names {
		rules = append(rules, fsm.AccessRule{Name: name, Primary: strings.Repeat("p", 40), Rights: fsm.Send})
	}
	return rules
}

func (g *growthCatalog) do(c fsm.Command) fsm.Code {
	g.index++
	return g.c.Apply(oneTime(fsm.Env{Index: g.index, Now: 1_700_000_000_000}), fsm.AppendCommand(nil, fsm.Header{}, c)).Code
}

// stored is the size of the image.
func (g *growthCatalog) stored() int {
	var image bytes.Buffer
	if _, err := g.c.Image().WriteTo(&image); err != nil {
		g.t.Fatal(err)
	}
	return image.Len()
}

func (*growthCatalog) samples() []fsm.Command {
	longer := queueIn(2, "orders").Settings
	longer.UserMetadata = "a text that was not there"
	return []fsm.Command{
		fsm.Pulse{},
		fsm.CloseReceiver{Incarnation: 1, Receiver: 1},
		fsm.RaiseLevel{Level: 1},
		fsm.HoldLevel{Max: 9},
		fsm.CreateNamespace{Name: "more"},
		fsm.UpdateNamespace{Namespace: 2, Settings: fsm.NamespaceSettings{UserMetadata: "a text that is longer"}},
		fsm.DeleteNamespace{Namespace: 3},
		fsm.SetAccess{Namespace: 2, Rules: growthRules("a", "b")},
		fsm.SetAccess{Namespace: 2},
		queueIn(2, "more"),
		fsm.UpdateEntity{Entity: 1, Settings: longer},
		fsm.DeleteEntity{Entity: 1},
		fsm.ForgetEntity{Entity: 2},
		fsm.SetMember{Member: fsm.Member{ID: "another", Name: "host", Weight: 100}},
		fsm.AddPartitions{Partitions: [][]fsm.MemberID{{"m", "n"}}},
		fsm.PartitionFormed{Partition: 1},
		fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"m", "n", "o"}},
		fsm.ReplaceReplica{Partition: 1, Replica: fsm.Replica{Member: "n", Number: 2}},
	}
}

// TestGrowthIsWhatCommandsStore: the commands that are refused while disk or memory is short are those after which a state
// machine stores more. A kind without a sample, and an exception that is none, fail.
func TestGrowthIsWhatCommandsStore(t *testing.T) {
	t.Parallel()
	sampled, exceptions := make(map[fsm.Kind]bool), grown()
	var used []fsm.Kind
	check := func(c fsm.Command, slack int, stored func() int, do func(fsm.Command) fsm.Code) {
		t.Helper()
		encoded := fsm.AppendCommand(nil, fsm.Header{}, c)
		info, err := fsm.PeekCommand(encoded)
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		before := stored()
		if code := do(c); code != fsm.OK {
			t.Errorf("%v: %v: the sample is refused", info.Kind, code)
		}
		sampled[info.Kind] = true
		after := stored()
		switch grew := after > before+slack; {
		case grew && exceptions[info.Kind] != "":
			used = append(used, info.Kind)
		case grew != fsm.Grows(encoded):
			t.Errorf("%v: stored %d bytes before and %d after, and fsm.Grows is %t", info.Kind, before, after, fsm.Grows(encoded))
		}
	}
	for i := range newGrowthQueues(t).samples() {
		g := newGrowthQueues(t)
		check(g.samples()[i], 0, g.stored, func(c fsm.Command) fsm.Code { return g.do(c).Code })
	}
	for i := range newGrowthCatalog(t).samples() {
		g := newGrowthCatalog(t)
		check(g.samples()[i], growthSlack, g.stored, g.do)
	}
	idle := newGrowthQueues(t)
	idle.pass(idleShardTime + 1)
	check(fsm.FenceIdle{Entity: 6, Step: fsm.FenceSet}, 0, idle.stored, func(c fsm.Command) fsm.Code { return idle.do(c).Code })
	moving := newGrowthCatalog(t)
	if code := moving.do(fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"m"}}); code != fsm.OK {
		t.Fatal(code)
	}
	check(fsm.PartitionPlaced{Partition: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}, growthSlack, moving.stored, moving.do)
	check(fsm.RenameCluster{ClusterID: "d"}, growthSlack, moving.stored, moving.do)
	founded := &growthCatalog{t: t, c: catalog.New()}
	check(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}}, growthSlack, founded.stored, founded.do)
	for k := range fsm.Kind(255) {
		if known := k.IsFor(1) || k.IsFor(fsm.CatalogPartition); known && !sampled[k] {
			t.Errorf("%v has no sample", k)
		}
		if exceptions[k] != "" && !slices.Contains(used, k) {
			t.Errorf("%v is an exception and stores nothing", k)
		}
	}
}
