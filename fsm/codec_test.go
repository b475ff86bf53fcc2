package fsm_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/fsm"
)

// TestCommandRoundTrip: decoding an encoded command returns the command.
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
		if diff := cmp.Diff(want, got, sameValue); diff != "" {
			t.Errorf("%T (-want +got):\n%s", want, diff)
		}
	}
}

func verify(command []byte) error {
	_, err := fsm.VerifyCommand(command)
	return err
}

// TestCommandIsStrict: missing and trailing bytes and other versions are refused.
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
		for _, version := range []byte{0, 5, 255} {
			b[0] = version
			if _, _, err := fsm.DecodeCommand(b); err == nil {
				t.Errorf("%T decodes as version %d", c, version)
			}
		}
	}
	unknown := fsm.AppendCommand(nil, header, fsm.Pulse{})
	for _, kind := range []byte{0, 27, 62, 81, 255} {
		unknown[1] = kind
		if _, _, err := fsm.DecodeCommand(unknown); err == nil {
			t.Errorf("kind %d decodes", kind)
		}
		if _, err := fsm.PeekCommand(unknown); err == nil {
			t.Errorf("kind %d peeks", kind)
		}
	}
	long := []byte{0xC1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x00, 0, 0}
	if _, _, err := fsm.DecodeCommand(long); err == nil {
		t.Error("a number that is longer than it must be decodes")
	}
}

// TestPeekAgreesWithCommand: PeekCommand returns the fields of the command.
func TestPeekAgreesWithCommand(t *testing.T) {
	t.Parallel()
	for _, c := range examples() {
		got, err := fsm.PeekCommand(fsm.AppendCommand(nil, header, c))
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		want := fsm.CommandInfo{Kind: got.Kind, Header: header}
		if got.Kind.IsFor(1) {
			switch c.(type) {
			case fsm.Pulse, fsm.CloseReceiver, fsm.RaiseLevel, fsm.BeginEpoch, fsm.Transact:
			default:
				want.Entity = 300
			}
		}
		switch c := c.(type) {
		case fsm.SendMessages:
			want.Messages = len(c.Messages)
		case fsm.TransferMessages:
			want.Messages = len(c.Messages)
		case fsm.SettleMessages:
			want.Settlements = len(c.Settlements)
		}
		if got != want {
			t.Errorf("%T peeks as %+v, want %+v", c, got, want)
		}
	}
}

// TestEveryKindIsInTheTable: every kind has a name of its own, and an example, which is in a golden file.
func TestEveryKindIsInTheTable(t *testing.T) {
	t.Parallel()
	examined := make(map[fsm.Kind]bool)
	for _, c := range examples() {
		info, err := fsm.PeekCommand(fsm.AppendCommand(nil, header, c))
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		examined[info.Kind] = true
	}
	names := make(map[string]fsm.Kind)
	for k := range fsm.Kind(255) {
		known := k.IsFor(1) || k.IsFor(fsm.CatalogPartition)
		if known != examined[k] {
			t.Errorf("kind %d: in the table %v, has an example %v", k, known, examined[k])
		}
		if other, twice := names[k.String()]; twice {
			t.Errorf("kinds %d and %d are both named %q", k, other, k)
		}
		names[k.String()] = k
		if unnamed := strings.HasPrefix(k.String(), "command "); unnamed == known {
			t.Errorf("kind %d: got the name %q, in the table %v", k, k, known)
		}
		if k.Brings() && !k.Grows() {
			t.Errorf("%s brings messages, and does not make data grow", k)
		}
	}
	if len(examined) == 0 {
		t.Error("no examples")
	}
}

// TestLimitsOfCommandsHold: for every limit of a command, a command at the limit and one above it.
func TestLimitsOfCommandsHold(t *testing.T) {
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
		return fsm.PutEntity{Entity: 1, Settings: fsm.EntitySettings{LockDuration: lock, MaxDeliveryCount: deliveries, MaxMessageBytes: size}}
	}
	with := func(change func(*fsm.EntitySettings)) fsm.Command {
		s := fsm.DefaultSettings()
		change(&s)
		return fsm.UpdateEntity{Entity: 1, Settings: s}
	}
	timed := func(life fsm.Millis, at fsm.Instant) fsm.Command {
		return fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte{}, TimeToLive: life, EnqueueAt: at}}}
	}
	until := func(v fsm.Verb, moment fsm.Instant) fsm.Command {
		return fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Verb: v, Until: moment, Properties: []byte{}}}}
	}
	const day, end = 24 * 3600 * 1000, fsm.Instant(fsm.Forever)
	found := func(id, member string, partitions, replicas int) fsm.Command {
		c := fsm.FoundCluster{ClusterID: id, Partitions: make([]fsm.Partition, partitions)}
		for i := range c.Partitions {
			c.Partitions[i].ID = fsm.PartitionID(i + 1)
			for j := range replicas {
				c.Partitions[i].Replicas = append(c.Partitions[i].Replicas, fsm.Replica{Member: fsm.MemberID(member[min(j, len(member)):])})
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
		{"messages", send(4501, 0), false},
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
		{"messages", fsm.FetchReady{Address: at, Seen: make([]fsm.LockID, 4096)}, true},
		{"messages", fsm.FetchReady{Address: at, Seen: make([]fsm.LockID, 4097)}, false},
		{"no messages", fsm.FetchReady{Address: at}, false},
		{"max", fsm.LockMessages{Address: at, Max: 4096}, true},
		{"max", fsm.LockMessages{Address: at, Max: 4097}, false},
		{"max", fsm.LockMessages{Address: at, Max: 1<<32 - 1}, false},
		{"no max", fsm.LockMessages{Address: at}, false},
		{"sub-queue", fsm.LockMessages{Address: fsm.Address{Entity: 1, Sub: 3}, Max: 1}, false},
		{"settings, least", put(1000, 1, 1), true},
		{"settings, most", put(24*3600_000, 2000, 100<<20), true},
		{"lock duration", put(999, 1, 1), false},
		{"lock duration", put(24*3600_000+1, 1, 1), false},
		{"deliveries", put(5000, 0, 1), false},
		{"deliveries", put(5000, 1<<31, 1), false},
		{"message size", put(5000, 1, 0), false},
		{"message size", put(5000, 1, 100<<20+1), false},
		{"life of a message", timed(fsm.Forever, 0), true},
		{"time of a message", timed(1, end), true},
		{"time of a message", timed(1, end+1), false},
		{"put off", until(fsm.Abandon, end), true},
		{"put off", until(fsm.Release, 1), false},
		{"put off", until(fsm.Complete, 1), false},
		{"scheduled", fsm.CancelScheduled{Entity: 1, Sequences: make([]fsm.SequenceNumber, 4096)}, true},
		{"scheduled", fsm.CancelScheduled{Entity: 1, Sequences: make([]fsm.SequenceNumber, 4097)}, false},
		{"scheduled", fsm.CancelScheduled{Entity: 1, Sequences: []fsm.SequenceNumber{}}, false},
		{"purge", fsm.PurgeMessages{Address: at, Max: 4000}, true},
		{"purge", fsm.PurgeMessages{Address: at, Max: 4001}, false},
		{"purge", fsm.PurgeMessages{Address: at}, false},
		{"purge", fsm.PurgeMessages{Address: fsm.Address{Entity: 1, Sub: 3}, Max: 1}, false},
		{"redrive", fsm.RedriveMessages{Entity: 1, Sequences: make([]fsm.SequenceNumber, 1000)}, true},
		{"redrive", fsm.RedriveMessages{Entity: 1, Sequences: make([]fsm.SequenceNumber, 1001)}, false},
		{"redrive", fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{}}, false},
		{"unlocked", fsm.SettleUnlocked{Address: at, Verb: fsm.Complete, States: fsm.SetOf(fsm.Ready), Sequences: make([]fsm.SequenceNumber, 1000)}, true},
		{"unlocked", fsm.SettleUnlocked{Address: at, Verb: fsm.Complete, States: fsm.SetOf(fsm.Ready), Sequences: make([]fsm.SequenceNumber, 1001)}, false},
		{"unlocked", fsm.SettleUnlocked{Address: at, Verb: fsm.Complete, States: fsm.SetOf(fsm.Locked), Sequences: make([]fsm.SequenceNumber, 1)}, false},
		{"unlocked", fsm.SettleUnlocked{Address: at, Verb: fsm.Release, States: fsm.SetOf(fsm.Deferred), Sequences: make([]fsm.SequenceNumber, 1)}, true},
		{"unlocked", fsm.SettleUnlocked{Address: at, Verb: fsm.Release, States: fsm.SetOf(fsm.Ready), Sequences: make([]fsm.SequenceNumber, 1)}, false},
		{"unlocked", fsm.SettleUnlocked{Address: at, Verb: fsm.Abandon, States: fsm.SetOf(fsm.Deferred), Sequences: make([]fsm.SequenceNumber, 1)}, false},
		{"unlocked", fsm.SettleUnlocked{Address: at, Verb: fsm.Complete, Sequences: make([]fsm.SequenceNumber, 1)}, false},
		{"touch", fsm.Touch{Entity: 1}, true},
		{"life", with(func(s *fsm.EntitySettings) { s.DefaultTimeToLive = 1 }), true},
		{"life", with(func(s *fsm.EntitySettings) { s.DefaultTimeToLive = fsm.Forever + 1 }), false},
		{"window", with(func(s *fsm.EntitySettings) { s.DuplicateWindow = 20_000 }), true},
		{"window", with(func(s *fsm.EntitySettings) { s.DuplicateWindow = 19_999 }), false},
		{"window", with(func(s *fsm.EntitySettings) { s.DuplicateWindow = 7 * day }), true},
		{"window", with(func(s *fsm.EntitySettings) { s.DuplicateWindow = 7*day + 1 }), false},
		{"idle", with(func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 300_000 }), true},
		{"idle", with(func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 299_999 }), false},
		{"idle", with(func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = fsm.Forever + 1 }), false},
		{"quota", with(func(s *fsm.EntitySettings) { s.MaxBytes = 1 << 20 }), true},
		{"quota", with(func(s *fsm.EntitySettings) { s.MaxBytes = 1<<20 - 1 }), false},
		{"quota", with(func(s *fsm.EntitySettings) { s.MaxBytes = 80 << 30 }), true},
		{"quota", with(func(s *fsm.EntitySettings) { s.MaxBytes = 80<<30 + 1 }), false},
		{"status", with(func(s *fsm.EntitySettings) { s.Status = fsm.ReceiveDisabled }), true},
		{"status", with(func(s *fsm.EntitySettings) { s.Status = 4 }), false},
		{"metadata", with(func(s *fsm.EntitySettings) { s.UserMetadata = text(1024) }), true},
		{"metadata", with(func(s *fsm.EntitySettings) { s.UserMetadata = text(1025) }), false},
		{"metadata", with(func(s *fsm.EntitySettings) { s.UserMetadata = "\xff" }), false},
		{"dead letters", with(func(s *fsm.EntitySettings) { s.DeadLetterTimeToLive = 1000 }), true},
		{"dead letters", with(func(s *fsm.EntitySettings) { s.DeadLetterTimeToLive = 999 }), false},
		{"dead letters", with(func(s *fsm.EntitySettings) { s.DeadLetterTimeToLive = fsm.Forever + 1 }), false},
		{"delay", with(func(s *fsm.EntitySettings) { s.RetryDelay, s.RetryDelayMax = 1, 7*day }), true},
		{"delay", with(func(s *fsm.EntitySettings) { s.RetryDelay, s.RetryDelayMax = 1, 7*day+1 }), false},
		{"delay", with(func(s *fsm.EntitySettings) { s.RetryDelay, s.RetryDelayMax = 2, 1 }), false},
		{"delay", with(func(s *fsm.EntitySettings) { s.RetryDelay, s.RetryDelayMax = 1, 0 }), false},
		{"delay", with(func(s *fsm.EntitySettings) { s.RetryDelay, s.RetryDelayMax = 0, 1 }), false},
		{"entity 0", fsm.PutEntity{Settings: fsm.DefaultSettings()}, false},
		{"cluster", found(text(256), text(256), 4096, 16), true},
		{"cluster id", found(text(257), "m", 1, 1), false},
		{"no cluster id", found("", "m", 1, 1), false},
		{"partitions", found("c", "m", 4097, 1), false},
		{"no partitions", found("c", "m", 0, 1), false},
		{"replicas", found("c", text(20), 1, 17), false},
		{"no replicas", found("c", "m", 1, 0), false},
		{"member", found("c", text(257), 1, 1), false},
		{"no member", found("c", "", 1, 1), false},
		{"entity in the catalog", fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "a", Settings: fsm.DefaultSettings()}, false},
	} {
		want := fsm.InvalidArgument
		if c.valid {
			want = fsm.OK
		}
		if got := fsm.Check(c.command); got != want {
			t.Errorf("%s: %T is %v, want %v", c.name, c.command, got, want)
		}
		b := fsm.AppendCommand(nil, header, c.command)
		if err := verify(b); c.valid != (err == nil) {
			t.Errorf("%s: %T verifies with %v", c.name, c.command, err)
		}
		_, _, err := fsm.DecodeCommand(b)
		if c.valid != (err == nil) || err != nil && !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("%s: %T decodes with %v", c.name, c.command, err)
		}
	}
}

// TestPayloadOver100MiBIsRefused: no message above 100 MiB, whatever the queue allows.
func TestPayloadOver100MiBIsRefused(t *testing.T) {
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

// TestFalseCountsAllocateNothing: a count that exceeds the bytes is refused before memory is
// allocated.
func TestFalseCountsAllocateNothing(t *testing.T) { // not parallel: it counts allocations
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	for _, c := range []fsm.Command{
		fsm.SendMessages{},
		fsm.SettleMessages{},
		fsm.RenewLocks{},
		fsm.FetchDeferred{},
		fsm.FetchReady{},
		fsm.FoundCluster{},
		fsm.CancelScheduled{},
		fsm.RedriveMessages{},
		fsm.SettleUnlocked{},
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

// TestResultRoundTrip: decoding an encoded result returns everything but the references.
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
	if diff := cmp.Diff(examplePatches(), got, sameValue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := fsm.DecodePatches(nil); got != nil || err != nil {
		t.Errorf("no bytes are %v, %v", got, err)
	}
	for _, bad := range [][]byte{{0}, {1}, {2}, {3}, {1, 0, 0, 0}, {1, 2, 0, 0, 0}, {2, 0, 0, 0, 0}, {3, 0, 0, 0, 0, 0, 0, 0}, append(b, 9)} {
		if _, err := fsm.DecodePatches(bad); err == nil {
			t.Errorf("%x decodes", bad)
		}
	}
}
