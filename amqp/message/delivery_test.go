package message

import (
	"errors"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

func TestDeliveryShowsItsLockOrState(t *testing.T) {
	t.Parallel()
	encoded := section(nil, wire.SectionData, []byte("x"))
	locked := fsm.Delivery{Lock: fsm.LockID{Sequence: 1}, State: fsm.Locked, LockedUntil: 5}
	token := fsm.LockToken{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

	m := deliver(t, encoded, locked, DeliveryOptions{LockToken: &token})
	want := goamqp.UUID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	if got := m.DeliveryAnnotations["x-opt-lock-token"]; got != want {
		t.Errorf("lock token %v", got)
	}
	m = deliver(t, encoded, locked, DeliveryOptions{Peeked: true})
	if _, ok := m.Annotations["x-opt-locked-until"]; !ok || m.DeliveryAnnotations != nil {
		t.Errorf("peeked a locked message with %v and %v, want the end of the lock and no token", m.Annotations, m.DeliveryAnnotations)
	}
	m = deliver(t, encoded, fsm.Delivery{State: fsm.Deferred}, DeliveryOptions{})
	if got := m.Annotations["x-opt-message-state"]; got != int32(1) {
		t.Errorf("deferred: state %v", got)
	}
	if _, ok := m.Annotations["x-opt-locked-until"]; ok {
		t.Error("not locked, but a lock is told")
	}
	if _, ok := m.Annotations["x-opt-deadletter-source"]; ok {
		t.Error("deadletter-source in the main queue")
	}
	place := testPlace()
	place.Sub = fsm.DeadLetterQueue
	m = deliverAt(t, place, encoded, locked, DeliveryOptions{})
	if got, ok := m.Annotations["x-opt-deadletter-source"]; ok {
		t.Errorf("deadletter-source %v of an own dead letter, want none", got)
	}
}

// A delivery always has its number and the time of enqueueing; other annotations of the broker only where they say
// something.
func TestDeliveryHasOnlyAnnotationsThatSaySomething(t *testing.T) {
	t.Parallel()
	encoded := section(nil, wire.SectionData, []byte("x"))
	sharded := testPlace()
	sharded.Shards = make([]fsm.Shard, 4)
	dead := testPlace()
	dead.Sub = fsm.DeadLetterQueue
	const shardOne = 1 << fsm.ShardShift
	never := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		place fsm.EntityRef
		d     fsm.Delivery
		o     DeliveryOptions
		want  map[string]any // besides the number and the time
	}{
		"received and deleted":   {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}}},
		"locked":                 {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}, State: fsm.Locked, LockedUntil: 5}, want: map[string]any{lockedUntilKey: time.UnixMilli(5).UTC()}},
		"peeked":                 {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}, State: fsm.Ready}, o: DeliveryOptions{Peeked: true}, want: map[string]any{messageStateKey: messageStateActive, lockedUntilKey: never}},
		"peeked, locked":         {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}, State: fsm.Locked, LockedUntil: 5}, o: DeliveryOptions{Peeked: true}, want: map[string]any{messageStateKey: messageStateActive, lockedUntilKey: time.UnixMilli(5).UTC()}},
		"deferred":               {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}, State: fsm.Deferred}, want: map[string]any{messageStateKey: messageStateDeferred}},
		"scheduled":              {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}, State: fsm.Scheduled}, o: DeliveryOptions{Peeked: true}, want: map[string]any{messageStateKey: messageStateScheduled, lockedUntilKey: never}},
		"copy of another number": {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}, Topic: 7}, want: map[string]any{EnqueueSequenceNumberKey: int64(7)}},
		"copy of the same":       {d: fsm.Delivery{Lock: fsm.LockID{Sequence: 7}, Topic: 7}, want: map[string]any{EnqueueSequenceNumberKey: int64(7)}},
		"partitioned":            {place: sharded, d: fsm.Delivery{Lock: fsm.LockID{Sequence: shardOne + 5}}, want: map[string]any{partitionIDKey: int16(1)}},
		"dead letter":            {place: dead, d: fsm.Delivery{Lock: fsm.LockID{Sequence: 1}}},
	} {
		if c.place.Name == "" {
			c.place = testPlace()
		}
		want := map[any]any{sequenceNumberKey: int64(c.d.Lock.Sequence), enqueuedTimeKey: time.UnixMilli(0).UTC()}
		for key, value := range c.want {
			want[key] = value
		}
		if diff := cmp.Diff(goamqp.Annotations(want), deliverAt(t, c.place, encoded, c.d, c.o).Annotations); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// A dead-letter property that is null would make the Go client panic: it is omitted, the other properties are
// kept.
func TestNullDeadLetterReasonIsDropped(t *testing.T) {
	t.Parallel()
	encoded := section(nil, wire.SectionApplicationProperties, wire.Map{
		{Key: "a", Value: int32(1)}, {Key: "DeadLetterReason", Value: nil}, {Key: "DeadLetterErrorDescription", Value: "why"},
	})
	m := deliver(t, encoded, fsm.Delivery{}, DeliveryOptions{})
	want := map[string]any{"a": int32(1), "DeadLetterErrorDescription": "why"}
	if diff := cmp.Diff(want, m.ApplicationProperties); diff != "" {
		t.Error(diff)
	}
}

func encodePatch(t *testing.T, m wire.Map) []byte {
	t.Helper()
	b := kit.Must(EncodeProperties(m))(t)
	return b
}

// Properties to modify are merged into the application properties; later values override earlier ones.
func TestModifiedPropertiesAreMerged(t *testing.T) {
	t.Parallel()
	patches := fsm.AppendPatches(nil, []fsm.Patch{
		{Properties: encodePatch(t, wire.Map{{Key: wire.Symbol("b"), Value: "patched"}, {Key: "c", Value: int64(1)}})},
		{Properties: encodePatch(t, wire.Map{{Key: "c", Value: int64(2)}, {Key: "DeadLetterReason", Value: "not this"}})},
		{DeadLetter: true, Reason: "reason", Description: "description", Properties: encodePatch(t, wire.Map{{Key: "d", Value: nil}})},
	})
	for name, own := range map[string]map[string]any{"none": nil, "some": {"a": int32(1), "b": "own"}} {
		sent := goamqp.NewMessage([]byte("body"))
		sent.ApplicationProperties = own
		sent.Footer = goamqp.Annotations{"f": "g"}
		encoded := kit.Must(sent.MarshalBinary())(t)
		m := deliver(t, encoded, fsm.Delivery{Patches: patches}, DeliveryOptions{})
		want := map[string]any{
			"b": "patched", "c": int64(2), "d": nil,
			"DeadLetterReason": "reason", "DeadLetterErrorDescription": "description",
		}
		if own != nil {
			want["a"] = int32(1)
		}
		if diff := cmp.Diff(want, m.ApplicationProperties); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if string(m.GetData()) != "body" || len(m.Footer) != 1 {
			t.Errorf("%s: body or footer lost", name)
		}
	}
	// A dead-lettering without reason sets no reason.
	patches = fsm.AppendPatches(nil, []fsm.Patch{{DeadLetter: true}})
	if m := deliver(t, encodedMessage(t, nil), fsm.Delivery{Patches: patches}, DeliveryOptions{}); m.ApplicationProperties != nil {
		t.Error(m.ApplicationProperties)
	}
}

func TestPropertiesAreEncodedAndReadBack(t *testing.T) {
	t.Parallel()
	if b, err := EncodeProperties(nil); b != nil || err != nil {
		t.Error(b, err)
	}
	if b := encodePatch(t, wire.Map{{Key: "DeadLetterReason", Value: nil}, {Key: "DeadLetterErrorDescription", Value: []any{int32(1)}}}); b != nil {
		t.Errorf("%x", b)
	}
	for name, m := range map[string]wire.Map{
		"key":          {{Key: int32(1), Value: "x"}},
		"one property": {{Key: "k", Value: strings.Repeat("x", propertyBytesMax)}},
		"all":          manyProperties(propertiesBytesMax + 10),
	} {
		var refused *Error
		if _, err := EncodeProperties(m); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := EncodeProperties(manyProperties(propertiesBytesMax + 9)); len(b) != propertiesBytesMax || err != nil {
		t.Error(len(b), err)
	}
}

func TestSplitDeadLetter(t *testing.T) {
	t.Parallel()
	reason, description, rest := SplitDeadLetter(wire.Map{
		{Key: wire.Symbol("DeadLetterReason"), Value: "r"},
		{Key: "DeadLetterErrorDescription", Value: nil},
		{Key: "other", Value: int32(1)},
	})
	if reason != "r" || description != "" || !cmp.Equal(rest, wire.Map{{Key: "other", Value: int32(1)}}) {
		t.Error(reason, description, rest)
	}
}

// Reason and description of another type than string are kept as their text: the Go client panics on others.
func TestDeadLetterReasonsOfOtherTypesAreKeptAsText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  string
	}{
		{"why", "why"},
		{wire.Symbol("why"), "why"},
		{int32(-5), "-5"},
		{uint64(1 << 62), "4611686018427387904"},
		{true, "True"},
		{1.5, "1.5"},
		{nil, ""},
		{[]any{int32(1)}, ""},
	} {
		reason, description, rest := SplitDeadLetter(wire.Map{{Key: "DeadLetterReason", Value: c.value}, {Key: "DeadLetterErrorDescription", Value: c.value}})
		if reason != c.want || description != c.want || rest != nil {
			t.Errorf("%v: reason %q, description %q, rest %v; want %q", c.value, reason, description, rest, c.want)
		}
		patches := fsm.AppendPatches(nil, []fsm.Patch{{Properties: encodePatch(t, wire.Map{{Key: "DeadLetterReason", Value: c.value}})}})
		m := deliver(t, encodedMessage(t, nil), fsm.Delivery{Patches: patches}, DeliveryOptions{})
		if got, present := m.ApplicationProperties["DeadLetterReason"]; present != (c.want != "") || present && got != c.want {
			t.Errorf("%v: property %v, want %q", c.value, got, c.want)
		}
		sent := section(nil, wire.SectionApplicationProperties, wire.Map{{Key: "a", Value: int32(1)}, {Key: "DeadLetterErrorDescription", Value: c.value}})
		m = deliver(t, sent, fsm.Delivery{}, DeliveryOptions{})
		if got, present := m.ApplicationProperties["DeadLetterErrorDescription"]; m.ApplicationProperties["a"] != int32(1) || present != (c.want != "") || present && got != c.want {
			t.Errorf("%v: sent property %v, want %q", c.value, got, c.want)
		}
	}
}

// The example of 4.3: the bytes of the delivery-tag, and the uuid that clients use to settle.
func TestLockTokenIsAGUIDInDotNetOrder(t *testing.T) {
	t.Parallel()
	token := fsm.LockToken{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	id := wire.UUID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	if got := UUIDFromToken(token); got != id {
		t.Errorf("%x", got)
	}
	if got := TokenFromUUID(id); got != token {
		t.Errorf("%x", got)
	}
}
