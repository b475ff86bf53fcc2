package fsm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
)

// catalog is a bootstrapped catalog, and what applies commands to it.
func foundCatalog(t *testing.T) (*catalog.Machine, func(fsm.Command) fsm.Result) {
	t.Helper()
	c, env := catalog.New(), fsm.Env{Now: 1_700_000_000_000}
	apply := func(cmd fsm.Command) fsm.Result {
		env.Index++
		env.Now += 1000
		return c.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{Incarnation: 7, Serial: env.Index, Low: env.Index}, cmd))
	}
	apply(fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}})
	return c, apply
}

// TestHostNamesSelectNamespaces: which namespace a host name selects, as clients and proxies spell it.
func TestHostNamesSelectNamespaces(t *testing.T) {
	t.Parallel()
	c, apply := foundCatalog(t)
	long := strings.Repeat("n", 50)
	for i, n := range []fsm.CreateNamespace{
		{Name: "orders", Settings: fsm.NamespaceSettings{Hosts: []string{"mq.example.com", "single"}}},
		{Name: "Mq", Settings: fsm.NamespaceSettings{Hosts: []string{"xn--bcher-kva.example"}}},
		{Name: long},
		{Name: "10"},
		{Name: "a-b-9"},
	} {
		if res := apply(n); res.Code != fsm.OK || res.Namespace != fsm.NamespaceID(i+2) {
			t.Fatalf("%s: %+v", n.Name, res)
		}
	}
	for host, want := range map[string]fsm.NamespaceID{
		"orders": 2, "ORDERS.localhost": 2, "orders.sb.example.com:5671": 2, "orders.": 2, "orders.localhost.:5672": 2, "orders:": 2,
		"mq.example.com": 2, "MQ.Example.COM:443": 2, "mq.example.com.": 2, "single": 2, "single:1": 2, "single.example.com": 1,
		"mq.example.org": 3, "mq": 3, "XN--bcher-kva.example": 3, "xn--bcher-kva.example.com": 1, "sub.mq.example.com": 1,
		long + ".x": 4, long + "n.x": 1, "a-b-9.x": 6, "a-b": 1,
		"10.sb.example.com": 5, "10.0.0.1": 1, "10.0.0.1:5671": 1, "10": 1, "10.": 1,
		"": 1, ".": 1, ":": 1, ".orders": 1, "localhost": 1, "localhost:5672": 1, "default.x": 1, "example.com": 1,
		"[::1]": 1, "[::1]:5672": 1, "::1": 1, "orders::1": 1, "[orders]": 1,
		"ordersx": 1, "order": 1, "örders.x": 1, "orders/x": 1, strings.Repeat("a.", 200) + "orders": 1,
	} {
		if got := c.NamespaceByHost(host); got != want {
			t.Errorf("%q selects %d, want %d", host, got, want)
		}
	}
	if catalog.New().NamespaceByHost("orders.x") != fsm.DefaultNamespace {
		t.Error("before the founding another namespace than the default one is selected")
	}
}

// TestLimitsOfNamespacesHold: every limit of a namespace and of access rules, met and passed by one.
func TestLimitsOfNamespacesHold(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return strings.Repeat("x", n) }
	name := func(name string) fsm.Command { return fsm.CreateNamespace{Name: name} }
	with := func(s fsm.NamespaceSettings) fsm.Command { return fsm.UpdateNamespace{Namespace: 1, Settings: s} }
	host := func(hosts ...string) fsm.Command { return with(fsm.NamespaceSettings{Hosts: hosts}) }
	hosts := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("h%d.x", i))
		}
		return list
	}
	rule := func(change func(*fsm.AccessRule)) fsm.Command {
		a := fsm.AccessRule{Name: "a", Primary: "p", Rights: fsm.Send}
		change(&a)
		return fsm.SetAccess{Namespace: 1, Rules: []fsm.AccessRule{a}}
	}
	rules := func(n int) (list []fsm.AccessRule) {
		for i := range n {
			list = append(list, fsm.AccessRule{Name: fmt.Sprint(i), Primary: "p", Rights: fsm.Manage})
		}
		return list
	}
	q := queueIn(1, "q")
	longest := text(63) + "." + text(63) + "." + text(63) + "." + text(61)
	for _, c := range []struct {
		name    string
		command fsm.Command
		valid   bool
	}{
		{"name", name(text(50)), true},
		{"name", name(text(51)), false},
		{"name", name(""), false},
		{"name", name("A-9"), true},
		{"name", name("-a"), false},
		{"name", name("a-"), false},
		{"name", name("a.b"), false},
		{"name", name("a_b"), false},
		{"name", name("ä"), false},
		{"name", name("\u212a"), false}, // the Kelvin sign, which folds to k
		{"name", name("LocalHost"), false},
		{"hosts", with(fsm.NamespaceSettings{Hosts: hosts(16)}), true},
		{"hosts", with(fsm.NamespaceSettings{Hosts: hosts(17)}), false},
		{"host", host("a_b.x-y.z1"), true},
		{"host", host(longest), true},
		{"host", host(longest + "x"), false},
		{"host", host(text(64)), false},
		{"host", host("A.x"), false},
		{"host", host("a..x"), false},
		{"host", host(""), false},
		{"host", host("a.x."), false},
		{"host", host("a.x:1"), false},
		{"host", host("localhost"), false},
		{"host", host("10.0.0.1"), false},
		{"host", host("::1"), false},
		{"host twice", host("a.x", "b.x", "a.x"), false},
		{"size", with(fsm.NamespaceSettings{MessageBytesMax: 100 << 20}), true},
		{"size", with(fsm.NamespaceSettings{MessageBytesMax: 100<<20 + 1}), false},
		{"lock", with(fsm.NamespaceSettings{LockDurationMax: 24 * 3600_000}), true},
		{"lock", with(fsm.NamespaceSettings{LockDurationMax: 24*3600_000 + 1}), false},
		{"lock", with(fsm.NamespaceSettings{LockDurationMax: 1000}), true},
		{"lock", with(fsm.NamespaceSettings{LockDurationMax: 999}), false},
		{"entities", with(fsm.NamespaceSettings{EntitiesMax: math.MaxUint32}), true},
		{"metadata", with(fsm.NamespaceSettings{UserMetadata: text(1024)}), true},
		{"metadata", with(fsm.NamespaceSettings{UserMetadata: text(1025)}), false},
		{"metadata", with(fsm.NamespaceSettings{UserMetadata: "\xff"}), false},
		{"no namespace", fsm.UpdateNamespace{}, false},
		{"no namespace", fsm.DeleteNamespace{}, false},
		{"no namespace", fsm.SetAccess{}, false},
		{"no namespace", queueIn(0, "q"), false},
		{"rules", fsm.SetAccess{Namespace: 1, Rules: rules(12)}, true},
		{"rules", fsm.SetAccess{Namespace: 1, Rules: rules(13)}, false},
		{"rules", fsm.CreateNamespace{Name: "a", Access: rules(12)}, true},
		{"rules", fsm.CreateNamespace{Name: "a", Access: rules(13)}, false},
		{"rules", func() fsm.Command { q.Access = rules(12); return q }(), true},
		{"rules", func() fsm.Command { q.Access = rules(13); return q }(), false},
		{"rule name", rule(func(a *fsm.AccessRule) { a.Name = text(256) }), true},
		{"rule name", rule(func(a *fsm.AccessRule) { a.Name = text(257) }), false},
		{"rule name", rule(func(a *fsm.AccessRule) { a.Name = "" }), false},
		{"rule name", rule(func(a *fsm.AccessRule) { a.Name = "a\nb" }), false},
		{"rule name", rule(func(a *fsm.AccessRule) { a.Name = "a\u0085b" }), false},
		{"rule name", rule(func(a *fsm.AccessRule) { a.Name = "a\xffb" }), false},
		{"rule name", rule(func(a *fsm.AccessRule) { a.Name = "für alle" }), true},
		{"primary", rule(func(a *fsm.AccessRule) { a.Primary = text(256) }), true},
		{"primary", rule(func(a *fsm.AccessRule) { a.Primary = text(257) }), false},
		{"primary", rule(func(a *fsm.AccessRule) { a.Primary = "" }), false},
		{"secondary", rule(func(a *fsm.AccessRule) { a.Secondary = text(256) }), true},
		{"secondary", rule(func(a *fsm.AccessRule) { a.Secondary = text(257) }), false},
		{"secondary", rule(func(a *fsm.AccessRule) { a.Secondary = "\xff" }), false},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = fsm.Send | fsm.Listen }), true},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = fsm.Manage }), true},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = 0 }), false},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = 4 }), false},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = 5 }), false},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = fsm.Read }), true},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = fsm.Read | fsm.Send | fsm.Listen }), true},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = fsm.Read | fsm.Manage }), false},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = fsm.Read | 4 }), false},
		{"rights", rule(func(a *fsm.AccessRule) { a.Rights = 16 }), false},
	} {
		holdsLimit(t, c.name, c.command, c.valid)
	}
}

// holdsLimit looks at a command the three ways that there are.
func holdsLimit(t *testing.T, name string, c fsm.Command, valid bool) {
	t.Helper()
	if got := fsm.Check(c); (got == fsm.OK) != valid {
		t.Errorf("%s: %+v is %v", name, c, got)
	}
	b := fsm.AppendCommand(nil, header, c)
	if err := verify(b); valid != (err == nil) {
		t.Errorf("%s: %+v verifies with %v", name, c, err)
	}
	_, apply := foundCatalog(t)
	if code := apply(c).Code; (code == fsm.InvalidArgument) == valid {
		t.Errorf("%s: %+v is applied with %v", name, c, code)
	}
}

// TestNamespacesAreLimited: 1000 of them.
func TestNamespacesAreLimited(t *testing.T) {
	t.Parallel()
	c, apply := foundCatalog(t)
	for i := range 999 {
		if res := apply(fsm.CreateNamespace{Name: fmt.Sprintf("n%d", i*7%999)}); res.Code != fsm.OK {
			t.Fatalf("number %d: %v", i, res.Code)
		}
	}
	if code := apply(fsm.CreateNamespace{Name: "more"}).Code; code != fsm.QuotaExceeded {
		t.Error(code)
	}
	if code := apply(fsm.DeleteNamespace{Namespace: 500}).Code; code != fsm.OK {
		t.Error(code)
	}
	if res := apply(fsm.CreateNamespace{Name: "more"}); res.Code != fsm.OK || res.Namespace != 1001 {
		t.Errorf("%+v", res)
	}
	if list := c.Namespaces("", 2000); len(list) != 1000 || list[0].Name != "default" || list[1].Name != "more" {
		t.Errorf("%d namespaces", len(list))
	}
	if list := c.Namespaces("more", -1); len(list) != 0 {
		t.Errorf("%d namespaces where none were asked for", len(list))
	}
}

// TestAccessAllocatesNothing: every connection looks up the namespace of a host, every token the
// access rules of a path.
func TestAccessAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	c, apply := foundCatalog(t)
	apply(fsm.CreateNamespace{Name: "orders", Settings: fsm.NamespaceSettings{Hosts: []string{"mq.example.com"}}})
	if n := testing.AllocsPerRun(100, func() {
		c.NamespaceByHost("Orders.SB.example.com:5671")
		c.NamespaceByHost("MQ.example.com:5671")
	}); n != 0 {
		t.Errorf("%v allocations for a host", n)
	}
	topic := fsm.CreateEntity{Namespace: 1, Kind: fsm.TopicEntity, Name: "T", Partition: 1, Settings: fsm.DefaultSettings()}
	topic.Access = []fsm.AccessRule{{Name: "a", Primary: "p", Rights: fsm.Send}}
	apply(topic)
	apply(fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: 1, Name: "T/Subscriptions/S", Settings: fsm.DefaultSettings()})
	for _, path := range []string{"t", "t/subscriptions/s"} {
		var own []fsm.AccessRule
		if n := testing.AllocsPerRun(100, func() { own, _ = c.Access(1, path) }); n != 0 || len(own) != 1 {
			t.Errorf("%s: %v allocations, %d rules", path, n, len(own))
		}
	}
}

// TestLocksUpTo24HoursAreGranted: message state machines accept every lock duration that a
// namespace can allow.
func TestLocksUpTo24HoursAreGranted(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	settings := fsm.DefaultSettings()
	settings.LockDuration = 24 * 3600_000
	env := fsm.Env{Now: 1000}
	apply := func(c fsm.Command) fsm.Result {
		env.Index++
		return r.q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: env.Index, Low: env.Index}, c))
	}
	apply(fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
	apply(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("m")}}})
	at := fsm.Address{Entity: 1}
	given := apply(fsm.LockMessages{Address: at, Max: 1, MaxBytes: 9}).Deliveries
	if len(given) != 1 || given[0].LockedUntil != 1000+24*3600_000 {
		t.Fatalf("%+v", given)
	}
	env.Now = given[0].LockedUntil - 1
	apply(fsm.Pulse{})
	if n := r.q.Ready(at); n != 0 {
		t.Error("the lock ended too early")
	}
	env.Now++
	apply(fsm.Pulse{})
	if n := r.q.Ready(at); n != 1 {
		t.Error("the lock did not end")
	}
}

// TestErrorsNameUnknownVersions: errors name the version found and those that are read.
func TestErrorsNameUnknownVersions(t *testing.T) {
	t.Parallel()
	command := fsm.AppendCommand(nil, header, fsm.Pulse{})
	command[0] = 9
	_, _, commandErr := fsm.DecodeCommand(command)
	result := fsm.AppendResult(nil, fsm.Result{})
	result[0] = 3
	_, resultErr := fsm.DecodeResult(result)
	queues := exampleQueues(t).image()
	other := bytes.Clone(queues)
	other[0] = 9
	for want, err := range map[string]error{
		"decode command: unknown version 0x09: this build reads 0xc1":     commandErr,
		"decode result: unknown version 0x03: this build reads 0xd1":      resultErr,
		"restore queues: unknown version 0x09: this build reads 0xa1":     queue.New(&discardBodies{}).Restore(bytes.NewReader(other)),
		"restore catalog: image of another state machine":                 catalog.New().Restore(bytes.NewReader(queues)),
		"decode command: number is too large or not in its shortest form": decodeErr(binary.AppendUvarint(kind(fsm.KindDeleteNamespace), 1<<32)),
		"decode command: count exceeds the bytes that follow":             decodeErr(append(kind(fsm.KindAddPartitions), 100)),
		"decode command: unknown flag":                                    decodeErr(append(kind(fsm.KindSetMember), 1, 'm', 0, 0, 0, 4)),
		"decode command of kind 74: over the limit (invalid argument)":    decodeErr(append(kind(fsm.KindSetMember), 1, 'm', 0, 0, 101, 0)),
		"decode command of kind 69: over the limit (invalid argument)":    decodeErr(append(kind(fsm.KindSetAccess), 1, 0, 0, 1, 1, 'a', 0, 0, 1)),
		"decode command: trailing bytes":                                  decodeErr(append(kind(fsm.KindDeleteNamespace), 1, 1)),
		"decode command: unexpected end":                                  decodeErr(append(kind(fsm.KindDeleteNamespace), 0x80)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// kind is a command of a kind without its payload.
func kind(k fsm.Kind) []byte {
	b := fsm.AppendCommand(nil, header, fsm.Pulse{})
	b[1] = byte(k)
	return b
}

func decodeErr(b []byte) error {
	_, _, err := fsm.DecodeCommand(b)
	return err
}

// TestLargestRecordsAreRestored: accepted records of the maximum size fit into an image.
func TestLargestRecordsAreRestored(t *testing.T) {
	t.Parallel()
	c, apply := foundCatalog(t)
	text := func(n int) string { return strings.Repeat("x", n) }
	var rules []fsm.AccessRule
	for i := range 12 {
		rules = append(rules, fsm.AccessRule{Name: text(254) + fmt.Sprintf("%2d", 12-i), Primary: text(256), Secondary: text(256), Rights: fsm.Manage})
	}
	settings := fsm.NamespaceSettings{MessageBytesMax: 100 << 20, LockDurationMax: 24 * 3600_000, EntitiesMax: math.MaxUint32, BytesMax: math.MaxUint64, MessagesMax: math.MaxUint64, RulesMax: math.MaxUint64, UserMetadata: text(1024)}
	for i := range 16 {
		settings.Hosts = append(settings.Hosts, text(63)+"."+text(63)+"."+text(63)+"."+text(59)+string(rune('a'+i))+"b")
	}
	member := fsm.Member{ID: fsm.MemberID(text(256)), Name: text(64), Zone: text(64), Weight: 100, Drained: true}
	var members []fsm.MemberID
	for i := range 16 {
		members = append(members, fsm.MemberID(text(254)+fmt.Sprintf("%2d", i)))
	}
	q := queueIn(2, text(260))
	q.Access, q.Settings.UserMetadata, q.Settings.LockDuration = rules, text(1024), 24*3600_000
	for _, cmd := range []fsm.Command{
		fsm.CreateNamespace{Name: text(50), Settings: settings, Access: rules},
		q,
		fsm.SetMember{Member: member},
		fsm.AddPartitions{Partitions: [][]fsm.MemberID{members}},
		fsm.PartitionFormed{Partition: 2},
		fsm.PlacePartition{Partition: 2, Members: members[:1]},
	} {
		if code := apply(cmd).Code; code != fsm.OK {
			t.Fatalf("%T: %v", cmd, code)
		}
	}
	var b bytes.Buffer
	if _, err := c.Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	again := catalog.New()
	if err := again.Restore(&b); err != nil || again.Digest() != c.Digest() {
		t.Errorf("restored to another machine: %v", err)
	}
}
