package fsm_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	golden(t, "image-v2-queues", exampleQueues(t).image())
	var b bytes.Buffer
	if _, err := exampleCatalog(t).Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "image-v2-catalog", b.Bytes())
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
	settings := exampleSettings()
	settings.Status, settings.RetryDelay, settings.AutoDeleteOnIdle = fsm.Active, 5000, 3_600_000
	apply(0, fsm.PutQueue{Entity: 7, Version: 2, Settings: settings})
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
	settings.AutoDeleteOnIdle = 300_000
	for id := fsm.EntityID(8); id < 10; id++ {
		apply(0, fsm.PutQueue{Entity: id, Version: 1, Settings: settings})
	}
	env.Now += 302_000
	apply(0, fsm.Touch{Entity: 9})
	env.Index++
	r.q.Apply(env, fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
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
