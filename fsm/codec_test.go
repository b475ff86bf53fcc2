package fsm_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/fsm"
)

var header = fsm.Header{Origin: 0x0102030405060708, Lane: 300, Serial: 70000, Low: 69990}

// exampleSettings has every field set.
func exampleSettings() fsm.QueueSettings {
	return fsm.QueueSettings{
		LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 20,
		DefaultTimeToLive: 86_400_000, DeadLetterOnExpiry: true, RequiresDuplicateDetection: true,
		DuplicateWindow: 60_000, AutoDeleteOnIdle: 300_000, MaxBytes: 5 << 30, Status: fsm.ReceiveDisabled,
		UserMetadata: "für später", DeadLetterTimeToLive: 7_000, RetryDelay: 500, RetryDelayMax: 60_000,
	}
}

// examples is one command of every kind, with every field set.
func examples() []fsm.Command {
	settings := exampleSettings()
	dead := fsm.Address{Entity: 300, Sub: fsm.DeadLetterQueue}
	return []fsm.Command{
		fsm.Pulse{},
		fsm.PutQueue{Entity: 300, Version: 7, Settings: settings},
		fsm.DropQueue{Entity: 300},
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
		fsm.CloseLane{Origin: 9, Lane: 10},
		fsm.CancelScheduled{Entity: 300, Sequences: []fsm.SequenceNumber{7, 1 << 33}},
		fsm.PurgeMessages{Address: dead, Before: 1_800_000_000_000, Max: 4000},
		fsm.RedriveMessages{Entity: 300, Sequences: []fsm.SequenceNumber{8}},
		fsm.Touch{Entity: 300},
		fsm.FoundCluster{ClusterID: "c", SealKey: [16]byte{1, 2, 3}, Partitions: []fsm.Partition{
			{ID: 1, Formed: true, Replicas: []fsm.Replica{{Member: "m", Number: 3}}},
		}},
		fsm.PartitionFormed{Partition: 2},
		fsm.CreateEntity{Name: "orders", Partition: 3, Settings: settings},
		fsm.UpdateEntity{Entity: 300, Settings: settings},
		fsm.DeleteEntity{Entity: 300},
		fsm.ForgetEntity{Entity: 300},
	}
}

func exampleResult() fsm.Result {
	return fsm.Result{
		Code: fsm.MessageLockLost, Sequence: 9, Entity: 3, Version: 4, Count: 1 << 40,
		Sequences: []fsm.SequenceNumber{0, 9},
		Codes:     []fsm.Code{fsm.OK, fsm.NotAllowed}, Untils: []fsm.Instant{0, 1_700_000_000_000},
		Deliveries: []fsm.Delivery{{
			Lock: fsm.LockID{Sequence: 7, Epoch: 1}, State: fsm.Locked, Attempts: 3, Enqueued: 1_700_000_000_000,
			LockedUntil: 1_700_000_060_000, Expires: 1_700_000_090_000, Payload: []byte("body"), Patches: []byte("patches"),
			Body: fsm.Ref{Segment: 1}, Patch: fsm.Ref{Offset: 2},
		}},
	}
}

func examplePatches() []fsm.Patch {
	return []fsm.Patch{
		{Properties: []byte("abc")},
		{DeadLetter: true, Reason: "r", Description: "d", Properties: []byte{}},
	}
}

// TestCommandRoundTrip: every command comes back as it was, and peeks as it is.
func TestCommandRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range examples() {
		b := fsm.AppendCommand([]byte("before"), header, want)[len("before"):]
		h, got, err := fsm.DecodeCommand(b)
		if err != nil {
			t.Fatalf("%T: %v", want, err)
		}
		if h != header {
			t.Errorf("%T: header %+v", want, h)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", want, diff)
		}
	}
}

// TestCommandIsStrict: no byte may be missing, too many or of another version.
func TestCommandIsStrict(t *testing.T) {
	t.Parallel()
	for _, c := range examples() {
		b := fsm.AppendCommand(nil, header, c)
		for n := range b {
			if _, _, err := fsm.DecodeCommand(b[:n]); err == nil {
				t.Errorf("%T decodes from %d of %d bytes", c, n, len(b))
			}
		}
		if _, _, err := fsm.DecodeCommand(append(bytes.Clone(b), 0)); err == nil {
			t.Errorf("%T decodes with a byte left over", c)
		}
		for _, version := range []byte{0, 3, 255} {
			b[0] = version
			if _, _, err := fsm.DecodeCommand(b); err == nil {
				t.Errorf("%T decodes as version %d", c, version)
			}
		}
	}
	unknown := fsm.AppendCommand(nil, header, fsm.Pulse{})
	for _, kind := range []byte{0, 14, 31, 38, 255} {
		unknown[1] = kind
		if _, _, err := fsm.DecodeCommand(unknown); err == nil {
			t.Errorf("kind %d decodes", kind)
		}
		if _, err := fsm.PeekCommand(unknown); err == nil {
			t.Errorf("kind %d peeks", kind)
		}
	}
	long := []byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x00, 0, 0}
	if _, _, err := fsm.DecodeCommand(long); err == nil {
		t.Error("a number that is longer than it must be decodes")
	}
}

// TestPeekCommand: what the batcher asks.
func TestPeekCommand(t *testing.T) {
	t.Parallel()
	dead := fsm.Address{Entity: 300, Sub: fsm.DeadLetterQueue}
	want := map[fsm.Kind]fsm.CommandInfo{
		fsm.KindPutQueue:        {Address: fsm.Address{Entity: 300}},
		fsm.KindDropQueue:       {Address: fsm.Address{Entity: 300}},
		fsm.KindSendMessages:    {Address: fsm.Address{Entity: 300}, Messages: 2},
		fsm.KindLockMessages:    {Address: dead, Messages: 4096, Delete: true},
		fsm.KindSettleMessages:  {Address: dead, Messages: 3},
		fsm.KindRenewLocks:      {Address: dead, Messages: 1},
		fsm.KindFetchDeferred:   {Address: dead, Messages: 2},
		fsm.KindCancelScheduled: {Address: fsm.Address{Entity: 300}, Messages: 2},
		fsm.KindPurgeMessages:   {Address: dead, Messages: 4000},
		fsm.KindRedriveMessages: {Address: fsm.Address{Entity: 300}, Messages: 1},
		fsm.KindTouch:           {Address: fsm.Address{Entity: 300}},
	}
	for _, c := range examples() {
		got, err := fsm.PeekCommand(fsm.AppendCommand(nil, header, c))
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		info := want[got.Kind]
		info.Kind, info.Header = got.Kind, header
		if got != info {
			t.Errorf("%T peeks as %+v, want %+v", c, got, info)
		}
	}
}

// TestCommandLimits: every limit of a command, met and passed by one.
func TestCommandLimits(t *testing.T) {
	t.Parallel()
	at := fsm.Address{Entity: 1}
	send := func(n, id int) fsm.Command {
		c := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, n)}
		if n > 0 {
			c.Messages[0].ID = strings.Repeat("i", id)
		}
		return c
	}
	settle := func(n, reason, description, properties int) fsm.Command {
		c := fsm.SettleMessages{Address: at, Settlements: make([]fsm.Settlement, n)}
		for i := range c.Settlements {
			c.Settlements[i].Verb = fsm.Complete
		}
		if n > 0 {
			c.Settlements[0].Reason = strings.Repeat("r", reason)
			c.Settlements[0].Description = strings.Repeat("d", description)
			c.Settlements[0].Properties = make([]byte, properties)
		}
		return c
	}
	put := func(lock fsm.Millis, deliveries, size uint32) fsm.Command {
		return fsm.PutQueue{Entity: 1, Settings: fsm.QueueSettings{LockDuration: lock, MaxDeliveryCount: deliveries, MaxMessageBytes: size}}
	}
	found := func(id, member string, partitions, replicas int) fsm.Command {
		c := fsm.FoundCluster{ClusterID: id, Partitions: make([]fsm.Partition, partitions)}
		for i := range c.Partitions {
			c.Partitions[i].ID = fsm.PartitionID(i + 1)
			for range replicas {
				c.Partitions[i].Replicas = append(c.Partitions[i].Replicas, fsm.Replica{Member: fsm.MemberID(member)})
			}
		}
		return c
	}
	text := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name    string
		command fsm.Command
		valid   bool
	}{
		{"messages", send(4096, 512), true},
		{"no messages", send(0, 0), false},
		{"messages", send(4097, 0), false},
		{"message id", send(1, 513), false},
		{"settlements", settle(4096, 16384, 16384, 65536), true},
		{"no settlements", settle(0, 0, 0, 0), false},
		{"settlements", settle(4097, 0, 0, 0), false},
		{"reason", settle(1, 16385, 0, 0), false},
		{"description", settle(1, 0, 16385, 0), false},
		{"properties", settle(1, 0, 0, 65537), false},
		{"no verb", fsm.SettleMessages{Address: at, Settlements: make([]fsm.Settlement, 1)}, false},
		{"verb", fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Verb: 6}}}, false},
		{"locks", fsm.RenewLocks{Address: at, Locks: make([]fsm.LockID, 4096)}, true},
		{"locks", fsm.RenewLocks{Address: at, Locks: make([]fsm.LockID, 4097)}, false},
		{"no locks", fsm.RenewLocks{Address: at}, false},
		{"numbers", fsm.FetchDeferred{Address: at, Sequences: make([]fsm.SequenceNumber, 4096)}, true},
		{"numbers", fsm.FetchDeferred{Address: at, Sequences: make([]fsm.SequenceNumber, 4097)}, false},
		{"max", fsm.LockMessages{Address: at, Max: 4096}, true},
		{"max", fsm.LockMessages{Address: at, Max: 4097}, false},
		{"max", fsm.LockMessages{Address: at, Max: 1<<32 - 1}, false},
		{"no max", fsm.LockMessages{Address: at}, false},
		{"sub-queue", fsm.LockMessages{Address: fsm.Address{Entity: 1, Sub: 2}, Max: 1}, false},
		{"settings, least", put(5000, 1, 1), true},
		{"settings, most", put(300_000, 2000, 100<<20), true},
		{"lock duration", put(4999, 1, 1), false},
		{"lock duration", put(300_001, 1, 1), false},
		{"deliveries", put(5000, 0, 1), false},
		{"deliveries", put(5000, 2001, 1), false},
		{"message size", put(5000, 1, 0), false},
		{"message size", put(5000, 1, 100<<20+1), false},
		{"entity 0", fsm.PutQueue{Settings: fsm.DefaultQueueSettings()}, false},
		{"cluster", found(text(256), text(256), 4096, 16), true},
		{"cluster id", found(text(257), "m", 1, 1), false},
		{"no cluster id", found("", "m", 1, 1), false},
		{"partitions", found("c", "m", 4097, 1), false},
		{"no partitions", found("c", "m", 0, 1), false},
		{"replicas", found("c", "m", 1, 17), false},
		{"no replicas", found("c", "m", 1, 0), false},
		{"member", found("c", text(257), 1, 1), false},
		{"no member", found("c", "", 1, 1), false},
		{"entity in the catalog", fsm.CreateEntity{Name: "a", Settings: fsm.DefaultQueueSettings()}, false},
	} {
		want := fsm.InvalidArgument
		if c.valid {
			want = fsm.OK
		}
		if got := fsm.Check(c.command); got != want {
			t.Errorf("%s: %T is %v, want %v", c.name, c.command, got, want)
		}
		b := fsm.AppendCommand(nil, header, c.command)
		if err := fsm.VerifyCommand(b); c.valid != (err == nil) {
			t.Errorf("%s: %T verifies with %v", c.name, c.command, err)
		}
		_, _, err := fsm.DecodeCommand(b)
		if c.valid != (err == nil) || err != nil && !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("%s: %T decodes with %v", c.name, c.command, err)
		}
	}
}

// TestPayloadLimit: no message above 100 MiB, whatever the queue allows.
func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	payload := make([]byte, 100<<20+1) // never touched: the zero page backs it
	c := fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: payload[:100<<20]}}}
	if code := fsm.Check(c); code != fsm.OK {
		t.Error(code)
	}
	c.Messages[0].Payload = payload
	if code := fsm.Check(c); code != fsm.MessageTooLarge {
		t.Error(code)
	}
}

// TestCountsAllocateNothing: a count that the bytes cannot back is refused before
// memory is taken for it.
func TestCountsAllocateNothing(t *testing.T) { // not parallel: it counts allocations
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	for _, c := range []fsm.Command{
		fsm.SendMessages{}, fsm.SettleMessages{}, fsm.RenewLocks{}, fsm.FetchDeferred{}, fsm.FoundCluster{},
	} {
		b := fsm.AppendCommand(nil, header, c)
		b = append(b[:len(b)-1], huge...) // the count stands last when the list is empty
		if n := testing.AllocsPerRun(10, func() { _, _, _ = fsm.DecodeCommand(b) }); n > 10 {
			t.Errorf("%T: %v allocations", c, n)
		}
		if _, _, err := fsm.DecodeCommand(b); err == nil {
			t.Errorf("%T decodes", c)
		}
	}
}

// TestResultRoundTrip: all but the references crosses.
func TestResultRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []fsm.Result{{}, exampleResult()} {
		b := fsm.AppendResult(nil, want)
		got, err := fsm.DecodeResult(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(fsm.Delivery{}, "Body", "Patch")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for n := range b {
			if _, err := fsm.DecodeResult(b[:n]); err == nil {
				t.Errorf("decodes from %d of %d bytes", n, len(b))
			}
		}
		if _, err := fsm.DecodeResult(append(b, 0)); err == nil {
			t.Error("decodes with a byte left over")
		}
	}
}

// TestPatchesRoundTrip: patches come back in order; no bytes are no patches.
func TestPatchesRoundTrip(t *testing.T) {
	t.Parallel()
	b := fsm.AppendPatches(nil, examplePatches())
	got, err := fsm.DecodePatches(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(examplePatches(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := fsm.DecodePatches(nil); got != nil || err != nil {
		t.Errorf("no bytes are %v, %v", got, err)
	}
	for _, bad := range [][]byte{{0}, {1}, {2}, {1, 0, 0, 0}, {1, 2, 0, 0, 0}, append(b, 9)} {
		if _, err := fsm.DecodePatches(bad); err == nil {
			t.Errorf("%x decodes", bad)
		}
	}
}

// TestFormats: what is written today is written so for ever. What lies in
// testdata/formats is never changed; a new format adds files. Run with the variable
// REWRITE_FORMATS=1 to write those that are missing.
func TestFormats(t *testing.T) {
	t.Parallel()
	for i, c := range examples() {
		name := fmt.Sprintf("command-v2-%02d-%T", i, c)
		golden(t, strings.ReplaceAll(name, "fsm.", ""), fsm.AppendCommand(nil, header, c))
	}
	golden(t, "result-v2", fsm.AppendResult(nil, exampleResult()))
	golden(t, "patches-v1", fsm.AppendPatches(nil, examplePatches()))
}

// TestFormatsOfOldReleases: commands of version 1 are still read, as the commands they
// were, with what version 2 added left out.
func TestFormatsOfOldReleases(t *testing.T) {
	t.Parallel()
	settings := fsm.QueueSettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 20}
	files, err := filepath.Glob("testdata/formats/command-v1-*.hex")
	if err != nil || len(files) != 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, want := range examples() {
		switch c := want.(type) {
		case fsm.PutQueue:
			c.Settings = settings
			want = c
		case fsm.CreateEntity:
			c.Settings = settings
			want = c
		case fsm.UpdateEntity:
			c.Settings = settings
			want = c
		case fsm.SendMessages:
			c.Messages[1].TimeToLive, c.Messages[1].EnqueueAt = 0, 0
		case fsm.SettleMessages:
			c.Settlements = c.Settlements[:2]
			want = c
		case fsm.CancelScheduled, fsm.PurgeMessages, fsm.RedriveMessages, fsm.Touch:
			continue // of version 2
		}
		i := slices.IndexFunc(files, func(name string) bool {
			return strings.HasSuffix(name, fmt.Sprintf("-%T.hex", want)[len("-fsm."):])
		})
		old, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(old)))
		if err != nil {
			t.Fatal(err)
		}
		h, got, err := fsm.DecodeCommand(b)
		if verified := fsm.VerifyCommand(b); err != nil || verified != nil || h != header {
			t.Errorf("%s: %v, %v, header %+v", files[i], err, verified, h)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", files[i], diff)
		}
		if _, err := fsm.PeekCommand(b); err != nil {
			t.Errorf("%s: %v", files[i], err)
		}
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

// exampleQueues is a machine with something of everything in it.
func exampleQueues(t testing.TB) *replica {
	r := newReplica(t)
	env := fsm.Env{Now: 1_700_000_000_000}
	serial := uint64(0)
	apply := func(lane uint64, c fsm.Command) fsm.Result {
		env.Index++
		env.Now += 1000
		serial++
		return r.q.Apply(env, fsm.AppendCommand(nil, fsm.Header{Origin: 7, Lane: lane, Serial: serial, Low: 1}, c))
	}
	at := fsm.Address{Entity: 5}
	apply(0, fsm.PutQueue{Entity: 5, Version: 1, Settings: fsm.DefaultQueueSettings()})
	apply(0, fsm.PutQueue{Entity: 6, Version: 3, Settings: fsm.DefaultQueueSettings()})
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
	return r
}

func exampleCatalog(t testing.TB) *fsm.Catalog {
	c := fsm.NewCatalog()
	env := fsm.Env{Now: 1_700_000_000_000}
	settings := fsm.DefaultQueueSettings()
	for i, cmd := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c1", SealKey: [16]byte{1, 2, 3}, Partitions: []fsm.Partition{
			{ID: 1, Replicas: []fsm.Replica{{Member: "m1", Number: 1}, {Member: "m2", Number: 2}}},
			{ID: 2, Replicas: []fsm.Replica{{Member: "m2", Number: 1}}},
		}},
		fsm.PartitionFormed{Partition: 2},
		fsm.CreateEntity{Name: "Orders", Partition: 1, Settings: settings},
		fsm.CreateEntity{Name: "billing/eu", Partition: 2, Settings: settings},
		fsm.DeleteEntity{Entity: 1},
	} {
		env.Index++
		env.Now += 1000
		h := fsm.Header{Origin: 7, Serial: uint64(i + 1), Low: 2}
		h.Low = min(h.Low, h.Serial)
		if res := c.Apply(env, fsm.AppendCommand(nil, h, cmd)); res.Code != fsm.OK {
			t.Fatalf("%T: %v", cmd, res.Code)
		}
	}
	return c
}
