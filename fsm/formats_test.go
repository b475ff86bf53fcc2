package fsm_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/queue"
)

// sameValue compares values of rules, whose fields are their own.
var sameValue = cmp.Comparer(func(x, y filter.Value) bool { return x == y })

var header = fsm.Header{Incarnation: 0x0102030405060708, Receiver: 300, Serial: 70000, Low: 69990}

// exampleSettings has every field set.
func exampleSettings() fsm.EntitySettings {
	return fsm.EntitySettings{
		LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 20,
		DefaultTimeToLive: 86_400_000, DeadLetterOnExpiry: true, RequiresDuplicateDetection: true,
		DuplicateWindow: 60_000, AutoDeleteOnIdle: 300_000, MaxBytes: 5 << 30, Status: fsm.ReceiveDisabled,
		UserMetadata: "für später", DeadLetterTimeToLive: 7_000, RetryDelay: 500, RetryDelayMax: 60_000,
	}
}

// examples is one command of every kind, with every field set.
func examples() []fsm.Command {
	settings := exampleSettings()
	settings.DeadLetterOnFilterErrors, settings.ForwardTo, settings.ForwardDeadLettersTo = true, "audit", "dead/ends"
	grouped := exampleSettings()
	grouped.RequiresSession = true
	rule := exampleRule()
	session := fsm.SessionLock{ID: "s", Epoch: 1 << 40}
	list := plainExamples()
	for i, c := range list {
		switch c := c.(type) {
		case fsm.PutEntity:
			c.Settings, c.Kind, c.Topic, c.Rule = settings, fsm.SubscriptionEntity, 299, &rule
			list[i] = c
		case fsm.CreateEntity:
			access := []fsm.AccessRule{{Name: "a", Primary: "p", Secondary: "s", Rights: fsm.Listen}}
			list = append(list, fsm.CreateEntity{Namespace: 300, Name: c.Name, Partition: c.Partition, Settings: c.Settings, Access: access})
			c.Settings, c.Name, c.Partition = grouped, "orders/Subscriptions/all", 0
			c.Kind, c.Topic, c.Rule = fsm.SubscriptionEntity, 299, &rule
			list[i] = c
		case fsm.UpdateEntity:
			c.Settings = settings
			list[i] = c
		case fsm.SendMessages:
			c.Messages[0].Properties = []byte{}
			c.Messages[1].Properties = fsm.AppendProperties(nil, []fsm.Property{
				{Name: filter.Property{Scope: filter.System, Name: filter.Label}, Value: filter.Text("l")},
				{Name: filter.Property{Name: "n"}, Value: filter.Int(-7)},
			})
			c.Messages[1].Session, c.Messages[1].HasSession = "s", true
		case fsm.LockMessages:
			c.Session = session
			list[i] = c
		case fsm.FetchDeferred:
			c.Session = session
			list[i] = c
		}
	}
	list = append(
		list, fsm.PutRule{Subscription: 300, Rule: rule, Replace: true}, fsm.DropRule{Subscription: 300, Name: "r"},
		fsm.AcceptSession{Entity: 300, Named: true, ID: "s"}, fsm.AcceptSession{Entity: 300, Named: true, ID: "s", Token: fsm.SessionToken{1, 15: 16}, TakeOver: true}, fsm.RenewSession{Entity: 300, Lock: session},
		fsm.ReleaseSession{Entity: 300, Lock: session}, fsm.SetSessionState{Entity: 300, Lock: session, State: []byte("state")},
	)
	list = append(list, exampleSpaces()...)
	return append(append(append(list, exampleForwarding()...), exampleTransact(), exampleFence()), exampleReserved()...)
}

// exampleSpaces returns the commands about namespaces, access rules and placement.
func exampleSpaces() []fsm.Command {
	settings := fsm.NamespaceSettings{
		Hosts: []string{"sb.example.com", "x_1.internal"}, MessageBytesMax: 100 << 20, LockDurationMax: 86_400_000,
		EntitiesMax: 1<<32 - 1, BytesMax: 1<<64 - 1, MessagesMax: 1 << 40, RulesMax: 70_000, UserMetadata: "für später",
	}
	rules := []fsm.AccessRule{{Name: "root key", Primary: "p=", Secondary: "s=", Rights: fsm.Manage}, {Name: "a", Primary: "p", Rights: fsm.Send}}
	return []fsm.Command{
		fsm.CreateNamespace{Name: "Team-1", Settings: settings, Access: rules},
		fsm.UpdateNamespace{Namespace: 1<<32 - 1, Settings: settings},
		fsm.DeleteNamespace{Namespace: 300},
		fsm.SetAccess{Namespace: 300, Entity: 1 << 40, Version: 70000, Rules: rules},
		fsm.SetMember{Member: fsm.Member{ID: "m", Name: "host-1", Zone: "eu-1", Weight: 100, Drained: true, Removed: true}},
		fsm.PlacePartition{Partition: 300, Members: []fsm.MemberID{"b", "a"}, Paused: true},
		fsm.PlacePartition{Partition: 300, Members: []fsm.MemberID{"b"}, Seen: 1 << 63},
		fsm.PartitionPlaced{Partition: 300, Replicas: []fsm.Replica{{Member: "b", Number: 1<<32 - 1}, {Member: "a", Number: 1}}},
		fsm.ReplaceReplica{Partition: 300, Replica: fsm.Replica{Member: "b", Number: 1<<32 - 1}},
		fsm.AddPartitions{Partitions: [][]fsm.MemberID{{"a", "b"}, {"b"}}},
		fsm.RaiseLevel{Level: 1<<32 - 1},
		fsm.HoldLevel{Max: 1<<32 - 1},
		fsm.RenameCluster{ClusterID: "c2"},
	}
}

// exampleRule has every field set that goes with the others.
func exampleRule() fsm.Rule {
	return fsm.Rule{
		Name: "r", Created: 1_700_000_000_000,
		Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{
			Text: "n > @least", Parameters: []filter.Parameter{{Name: "@least", Value: filter.Int(5)}},
		}},
		Action: fsm.SQLText{Text: "SET big = 'yes'"},
	}
}

// plainExamples are commands without the fields of topics, sessions and namespaces.
func plainExamples() []fsm.Command {
	settings := exampleSettings()
	dead := fsm.Address{Entity: 300, Sub: fsm.DeadLetterQueue}
	return []fsm.Command{
		fsm.Pulse{},
		fsm.PutEntity{Entity: 300, Version: 7, Settings: settings},
		fsm.DropEntity{Entity: 300},
		fsm.SendMessages{Entity: 300, Messages: []fsm.Message{{ID: "m1", Payload: []byte("hello")}, {Payload: []byte{}, TimeToLive: 60_000, EnqueueAt: 1_800_000_000_000}}},
		fsm.LockMessages{Address: dead, Max: 4096, MaxBytes: 1 << 20, Delete: true},
		fsm.SettleMessages{Address: dead, Settlements: []fsm.Settlement{
			{Lock: fsm.LockID{Sequence: 1, Epoch: 2}, Verb: fsm.Complete, Properties: []byte{}},
			{
				Lock: fsm.LockID{Sequence: 1 << 40, Epoch: 1<<32 - 1}, Verb: fsm.DeadLetter,
				Reason: "r", Description: "d", Properties: []byte("p"),
			},
			{Lock: fsm.LockID{Sequence: 2, Epoch: 1}, Verb: fsm.Abandon, Until: 1_800_000_000_000, Properties: []byte{}},
		}},
		fsm.RenewLocks{Address: dead, Locks: []fsm.LockID{{Sequence: 5, Epoch: 6}}},
		fsm.FetchDeferred{Address: dead, Sequences: []fsm.SequenceNumber{1, 1 << 50}, Delete: true},
		fsm.FetchReady{Address: dead, Seen: []fsm.LockID{{Sequence: 1}, {Sequence: 1 << 50, Epoch: 1<<32 - 1}}, Delete: true},
		fsm.CloseReceiver{Incarnation: 9, Receiver: 10},
		fsm.CancelScheduled{Entity: 300, Sequences: []fsm.SequenceNumber{7, 1 << 33}},
		fsm.PurgeMessages{Address: dead, Before: 1_800_000_000_000, Max: 4000},
		fsm.RedriveMessages{Entity: 300, Sequences: []fsm.SequenceNumber{8}},
		fsm.SettleUnlocked{Address: dead, Verb: fsm.Complete, States: fsm.SetOf(fsm.Ready, fsm.Deferred, fsm.Scheduled), Sequences: []fsm.SequenceNumber{8, 1 << 40}},
		fsm.Touch{Entity: 300},
		fsm.FoundCluster{ClusterID: "c", TokenKey: [16]byte{1, 2, 3}, Partitions: []fsm.Partition{
			{ID: 1, Formed: true, Replicas: []fsm.Replica{{Member: "m", Number: 3}}},
		}},
		fsm.PartitionFormed{Partition: 2},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "orders", Partition: 3, Settings: settings},
		fsm.UpdateEntity{Entity: 300, Settings: settings},
		fsm.DeleteEntity{Entity: 300},
		fsm.ForgetEntity{Entity: 300},
	}
}

func exampleResult() fsm.Result {
	return fsm.Result{
		Code: fsm.MessageLockLost, Sequence: 9, Entity: 3, Namespace: 7, Version: 4, Count: 1 << 40,
		Sequences: []fsm.SequenceNumber{0, 9},
		Serial:    12, To: fsm.Destination{Partition: 3, Entity: 1 << 50}, Session: fsm.SessionLock{ID: "s", Epoch: 13},
		Codes: []fsm.Code{fsm.OK, fsm.NotAllowed}, Untils: []fsm.Instant{0, 1_700_000_000_000},
		Deliveries: []fsm.Delivery{{
			Lock: fsm.LockID{Sequence: 7, Epoch: 1}, State: fsm.Locked, FailedDeliveries: 3, Enqueued: 1_700_000_000_000,
			LockedUntil: 1_700_000_060_000, Expires: 1_700_000_090_000, Payload: []byte("body"), Patches: []byte("patches"),
			Topic: 1 << 40, Hops: 4, Body: fsm.Ref{Segment: 1}, Patch: fsm.Ref{Offset: 2},
		}},
	}
}

func examplePatches() []fsm.Patch {
	return []fsm.Patch{
		{Properties: []byte("abc")},
		{DeadLetter: true, Reason: "r", Description: "d", Properties: []byte{}},
		{Properties: []byte{}, Enqueued: 1 << 40, Source: "orders", Changes: []fsm.Change{
			{Property: filter.Property{Name: "RuleName"}, Value: filter.Text("r")},
			{Property: filter.Property{Scope: filter.System, Name: filter.Label}, Remove: true},
		}},
		{Properties: []byte{}, To: fsm.Destination{Partition: 3, Entity: 1 << 50}, ToName: "orders"},
	}
}

// TestFormats: what is written is in testdata/formats. Run with the variable REWRITE_FORMATS=1 to write missing files.
func TestFormats(t *testing.T) {
	t.Parallel()
	for _, c := range examples() {
		name := fmt.Sprintf("command-%T", c)
		if c, ok := c.(fsm.CreateEntity); ok && c.Access != nil {
			name += "-access"
		}
		if c, ok := c.(fsm.PlacePartition); ok && c.Seen != 0 {
			name += "-seen"
		}
		if c, ok := c.(fsm.TransferMessages); ok && c.Messages[0].Reserved != 0 {
			name += "-scheduled"
		}
		if c, ok := c.(fsm.Transact); ok && c.Cancels != nil {
			name += "-extended"
		}
		if c, ok := c.(fsm.AcceptSession); ok && c.TakeOver {
			name += "-token"
		}
		golden(t, strings.ReplaceAll(name, "fsm.", ""), fsm.AppendCommand(nil, header, c))
	}
	golden(t, "result", fsm.AppendResult(nil, exampleResult()))
	golden(t, "patches", fsm.AppendPatches(nil, append(examplePatches(), reservedPatch())))
	golden(t, "image-queues", exampleQueues(t).image())
	golden(t, "image-queues-epochs", exampleEpochs(t).image())
	var b bytes.Buffer
	if _, err := exampleCatalog(t).Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "image-catalog", b.Bytes())
}

// TestOtherVersionsAreRefused: nothing decodes with another first byte, such as one of the formats before level 1.
func TestOtherVersionsAreRefused(t *testing.T) {
	t.Parallel()
	command, patches := fsm.AppendCommand(nil, header, fsm.Pulse{}), fsm.AppendPatches(nil, examplePatches())
	result, image := fsm.AppendResult(nil, exampleResult()), exampleQueues(t).image()
	for version := range 256 {
		decodes := func(name string, b []byte, decode func([]byte) error) {
			other := bytes.Clone(b)
			other[0] = byte(version)
			if err := decode(other); (err == nil) != (other[0] == b[0]) {
				t.Errorf("%s of version 0x%02x: %v", name, version, err)
			}
		}
		decodes("command", command, func(b []byte) error { _, _, err := fsm.DecodeCommand(b); return err })
		decodes("peeked command", command, func(b []byte) error { _, err := fsm.PeekCommand(b); return err })
		decodes("verified command", command, verify)
		decodes("patches", patches, func(b []byte) error { _, err := fsm.DecodePatches(b); return err })
		decodes("result", result, func(b []byte) error { _, err := fsm.DecodeResult(b); return err })
		decodes("image", image, func(b []byte) error {
			return queue.New(&discardBodies{}).Restore(bytes.NewReader(sealed(b)))
		})
	}
}

// golden compares bytes with a file of hex. The newest format is also what is written.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "formats", name+".hex")
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && os.Getenv("REWRITE_FORMATS") != "" {
		want = []byte(hex.EncodeToString(got) + "\n")
		err = os.WriteFile(path, want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(got)+"\n" != string(want) {
		t.Errorf("%s is written otherwise:\n got %x\nwant %s", name, got, want)
	}
}

// exampleQueues is a state machine with something of everything in it.
func exampleQueues(t testing.TB) *replica {
	r := newReplica(t)
	env := fsm.Env{Now: 1_700_000_000_000}
	serial := uint64(0)
	apply := func(receiver uint64, c fsm.Command) fsm.Result {
		env.Index++
		env.Now += 1000
		serial++
		return r.q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{Incarnation: 7, Receiver: receiver, Serial: serial, Low: 1}, c))
	}
	at := fsm.Address{Entity: 5}
	apply(0, fsm.PutEntity{Entity: 5, Version: 1, Settings: fsm.DefaultSettings()})
	apply(0, fsm.PutEntity{Entity: 6, Version: 3, Settings: fsm.DefaultSettings()})
	apply(0, fsm.SendMessages{Entity: 5, Messages: []fsm.Message{
		{Payload: []byte("a")}, {Payload: []byte("bb")}, {Payload: []byte("ccc")}, {Payload: []byte("dddd")}, {Payload: []byte("e")},
	}})
	locked := apply(1, fsm.LockMessages{Address: at, Max: 3, MaxBytes: 100}).Deliveries
	apply(2, fsm.LockMessages{Address: at, Max: 1, Delete: true})
	apply(0, fsm.RenewLocks{Address: at, Locks: []fsm.LockID{locked[2].Lock, {Sequence: 9, Epoch: 9}}})
	apply(0, fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{
		{Lock: locked[0].Lock, Verb: fsm.Defer, Properties: []byte("p")},
		{Lock: locked[1].Lock, Verb: fsm.DeadLetter, Reason: "r", Description: "d"},
		{Lock: locked[1].Lock, Verb: fsm.Complete},
	}})
	apply(3, fsm.FetchDeferred{Address: at, Sequences: []fsm.SequenceNumber{1}})
	settings := exampleSettings()
	settings.Status, settings.RetryDelay, settings.AutoDeleteOnIdle = fsm.Active, 5000, 3_600_000
	apply(0, fsm.PutEntity{Entity: 7, Version: 2, Settings: settings})
	apply(0, fsm.SendMessages{Entity: 7, Messages: []fsm.Message{
		{ID: "f", Payload: []byte("ffffff"), TimeToLive: 60_000},
		{ID: "f", Payload: []byte("again")},
		{ID: "g", Payload: []byte("g"), TimeToLive: 90_000, EnqueueAt: env.Now + 50_000},
		{ID: "h", Payload: []byte("h")},
		{ID: "i", Payload: []byte("i")},
	}})
	at.Entity = 7
	locked = apply(0, fsm.LockMessages{Address: at, Max: 3, MaxBytes: 100}).Deliveries
	apply(0, fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{
		{Lock: locked[0].Lock, Verb: fsm.Abandon, Until: env.Now + 9000, Properties: []byte("q")},
		{Lock: locked[1].Lock, Verb: fsm.DeadLetter},
		{Lock: locked[2].Lock, Verb: fsm.DeadLetter, Reason: "r"},
	}})
	apply(0, fsm.RedriveMessages{Entity: 7, Sequences: []fsm.SequenceNumber{4}})
	do := func(c fsm.Command) fsm.Result { return apply(0, c) }
	forwardSome(do)
	publishSome(do, env.Now)
	groupSome(do)
	transactSome(do)
	settings.AutoDeleteOnIdle = 300_000
	for id := fsm.EntityID(8); id < 10; id++ {
		apply(0, fsm.PutEntity{Entity: id, Version: 1, Settings: settings})
	}
	env.Now += 302_000
	apply(0, fsm.Touch{Entity: 9})
	env.Index++
	r.q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
	return r
}

// publishSome leaves topic 30 with subscriptions that share messages and have rules of
// every kind, and a message that waits for its time.
func publishSome(apply func(fsm.Command) fsm.Result, now fsm.Instant) {
	settings, rule := fsm.DefaultSettings(), exampleRule()
	settings.DeadLetterOnFilterErrors = true
	apply(fsm.PutEntity{Entity: 30, Version: 1, Kind: fsm.TopicEntity, Settings: settings})
	for id := fsm.EntityID(31); id < 33; id++ {
		apply(fsm.PutEntity{Entity: id, Version: 1, Kind: fsm.SubscriptionEntity, Topic: 30, Settings: settings, Rule: &rule})
		rule.Filter, rule.Name = fsm.RuleFilter{}, fsm.DefaultRuleName
	}
	for i, f := range []fsm.RuleFilter{
		{Kind: fsm.FalseFilter},
		{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{{Property: filter.Property{Name: "n"}, Value: filter.Int(7)}}},
		{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "n = 'x'"}},
	} {
		apply(fsm.PutRule{Subscription: 31, Rule: fsm.Rule{Name: fmt.Sprint(i), Filter: f}})
	}
	properties := fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Name: "n"}, Value: filter.Int(7)}})
	apply(fsm.SendMessages{Entity: 30, Messages: []fsm.Message{
		{Payload: []byte("all"), Properties: properties},
		{Payload: []byte("few")},
		{Payload: []byte("later"), Properties: properties, EnqueueAt: now + 1_000_000},
	}})
}

// groupSome leaves queue 40 with a locked and an unlocked session.
func groupSome(apply func(fsm.Command) fsm.Result) {
	settings := fsm.DefaultSettings()
	settings.RequiresSession, settings.LockDuration = true, 300_000
	apply(fsm.PutEntity{Entity: 40, Version: 1, Settings: settings})
	apply(fsm.SendMessages{Entity: 40, Messages: []fsm.Message{
		{Payload: []byte("x"), Session: "s", HasSession: true}, {Payload: []byte("y"), HasSession: true}, {Payload: []byte("z"), Session: "s", HasSession: true},
	}})
	lock := apply(fsm.AcceptSession{Entity: 40, Named: true, ID: "s"}).Session
	apply(fsm.LockMessages{Address: fsm.Address{Entity: 40}, Max: 1, MaxBytes: 100, Session: lock})
	apply(fsm.SetSessionState{Entity: 40, Lock: lock, State: []byte("state")})
}

func exampleCatalog(t testing.TB) *catalog.Machine {
	c := catalog.New()
	env := fsm.Env{Now: 1_700_000_000_000}
	settings, rule := fsm.DefaultSettings(), exampleRule()
	access := []fsm.AccessRule{{Name: "root", Primary: "p=", Secondary: "s=", Rights: fsm.Manage}, {Name: "a", Primary: "p", Rights: fsm.Send}}
	for i, cmd := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c1", TokenKey: [16]byte{1, 2, 3}, Partitions: []fsm.Partition{
			{ID: 1, Replicas: []fsm.Replica{{Member: "m1", Number: 1}, {Member: "m2", Number: 2}}},
			{ID: 2, Replicas: []fsm.Replica{{Member: "m2", Number: 1}}},
		}},
		fsm.PartitionFormed{Partition: 2},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "Orders", Partition: 1, Settings: settings},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "billing/eu", Partition: 2, Settings: settings},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: "events", Partition: 1, Settings: settings},
		fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: 3, Name: "events/Subscriptions/all", Settings: settings, Rule: &rule},
		fsm.DeleteEntity{Entity: 1},
		fsm.CreateNamespace{Name: "Team-1", Settings: fsm.NamespaceSettings{
			Hosts: []string{"z.example.com", "a.example.com"}, MessageBytesMax: 2 << 20, LockDurationMax: 3_600_000, EntitiesMax: 5,
			BytesMax: 1 << 33, MessagesMax: 6, RulesMax: 7, UserMetadata: "für später",
		}, Access: access},
		fsm.CreateEntity{Namespace: 2, Kind: fsm.TopicEntity, Name: "billing/eu", Partition: 2, Settings: settings, Access: access},
		fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: 5, Name: "billing/eu/Subscriptions/all", Settings: settings},
		fsm.SetAccess{Namespace: 2, Version: 1, Rules: access[:1]},
		fsm.CreateNamespace{Name: "gone"},
		fsm.DeleteNamespace{Namespace: 3},
		fsm.SetMember{Member: fsm.Member{ID: "m3", Name: "host-3", Zone: "eu-1", Weight: 20, Drained: true}},
		fsm.SetMember{Member: fsm.Member{ID: "m0", Removed: true}},
		fsm.PlacePartition{Partition: 2, Members: []fsm.MemberID{"m4", "m2"}},
		fsm.PlacePartition{Partition: 2, Members: []fsm.MemberID{"m5"}, Paused: true},
	} {
		env.Index++
		env.Now += 1000
		h := fsm.Header{Incarnation: 7, Serial: uint64(i + 1), Low: 2}
		h.Low = min(h.Low, h.Serial)
		if res := c.Apply(oneTime(env), fsm.AppendCommand(nil, h, cmd)); res.Code != fsm.OK {
			t.Fatalf("%T: %v", cmd, res.Code)
		}
	}
	return c
}
