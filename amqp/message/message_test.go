package message

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/kit"
)

func testPlace() fsm.EntityRef { return fsm.EntityRef{Entity: fsm.Entity{ID: 7, Name: "Orders"}} }

func ptr[T any](v T) *T { return &v }

// encodedMessage returns a message in the encoding of go-amqp.
func encodedMessage(t testing.TB, body []byte) []byte {
	t.Helper()
	encoded := kit.Must(goamqp.NewMessage(body).MarshalBinary())(t)
	return encoded
}

// section appends one section with an encoded value.
func section(dst []byte, kind wire.SectionKind, v any) []byte {
	return wire.AppendValue(wire.AppendSectionDescriptor(dst, kind), v)
}

// deliver parses and delivers an encoded message, and decodes it as the Go client does.
func deliver(t *testing.T, encoded []byte, d fsm.Delivery, o DeliveryOptions) *goamqp.Message {
	t.Helper()
	return deliverAt(t, testPlace(), encoded, d, o)
}

func deliverAt(t *testing.T, place fsm.EntityRef, encoded []byte, d fsm.Delivery, o DeliveryOptions) *goamqp.Message {
	t.Helper()
	m := kit.Must(Parse(encoded))(t)
	d.Payload = m.Payload
	out := kit.Must(AppendDelivery([]byte("before"), place, d, o))(t)
	if string(out[:6]) != "before" {
		t.Fatalf("%x", out[:6])
	}
	var got goamqp.Message
	kit.OK(t, got.UnmarshalBinary(out[6:]))
	return &got
}

func fullMessage() *goamqp.Message {
	return &goamqp.Message{
		Header:              &goamqp.MessageHeader{Durable: true, Priority: 7, TTL: time.Minute, FirstAcquirer: true, DeliveryCount: 9},
		DeliveryAnnotations: goamqp.Annotations{"x-for-you": "only"},
		Annotations: goamqp.Annotations{
			"x-opt-partition-key":     "session",
			"x-opt-sequence-number":   "forged",
			"x-opt-enqueued-time":     int64(5),
			"x-opt-locked-until":      int64(5),
			"x-opt-message-state":     int64(2),
			"x-opt-deadletter-source": int64(2),
			"x-opt-custom":            uint8(3),
		},
		Properties: &goamqp.MessageProperties{
			MessageID: "id-1", UserID: []byte{1}, To: ptr("to"), Subject: ptr("label"), ReplyTo: ptr("reply"),
			CorrelationID: goamqp.UUID{1}, ContentType: ptr("text/plain"), ContentEncoding: ptr("gzip"),
			AbsoluteExpiryTime: ptr(time.UnixMilli(1000).UTC()), CreationTime: ptr(time.UnixMilli(500).UTC()),
			GroupID: ptr("session"), GroupSequence: ptr(uint32(4)), ReplyToGroupID: ptr("other"),
		},
		ApplicationProperties: map[string]any{"a": int64(1), "b": "two", "c": time.UnixMilli(77).UTC()},
		Data:                  [][]byte{[]byte("one"), []byte("two")},
		Footer:                goamqp.Annotations{"f": "g"},
	}
}

// A delivery contains everything that the client sent, except annotations that belong to the broker, which are
// written again with their exact types.
func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	sent := fullMessage()
	encoded := kit.Must(sent.MarshalBinary())(t)
	got := deliver(t, encoded, fsm.Delivery{
		Lock: fsm.LockID{Sequence: 300, Epoch: 1}, State: fsm.Locked, FailedDeliveries: 2, Enqueued: 1000, LockedUntil: 2000,
	}, DeliveryOptions{})
	want := fullMessage()
	want.Header = &goamqp.MessageHeader{Durable: true, Priority: 7, TTL: time.Minute, FirstAcquirer: true, DeliveryCount: 2}
	want.Annotations = goamqp.Annotations{
		"x-opt-partition-key":   "session",
		"x-opt-custom":          uint8(3),
		"x-opt-sequence-number": int64(300),
		"x-opt-enqueued-time":   time.UnixMilli(1000).UTC(),
		"x-opt-locked-until":    time.UnixMilli(2000).UTC(),
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(sameMessage)); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
}

// sameMessage compares the exported fields.
func sameMessage(a, b *goamqp.Message) bool {
	return cmp.Equal(a.Header, b.Header) && cmp.Equal(a.DeliveryAnnotations, b.DeliveryAnnotations) &&
		cmp.Equal(a.Annotations, b.Annotations) && cmp.Equal(a.Properties, b.Properties) &&
		cmp.Equal(a.ApplicationProperties, b.ApplicationProperties) && cmp.Equal(a.Data, b.Data) &&
		cmp.Equal(a.Value, b.Value) && cmp.Equal(a.Sequence, b.Sequence) && cmp.Equal(a.Footer, b.Footer)
}

// Messages with each of the three kinds of body, and without body, are delivered unchanged.
func TestEveryKindOfBodyIsDeliveredUnchanged(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]*goamqp.Message{
		"none":     {},
		"data":     {Data: [][]byte{{}}},
		"value":    {Value: map[string]any{"k": []any{int32(1), nil}}},
		"sequence": {Sequence: [][]any{{"a"}, {int64(2)}}},
		"long":     {Data: [][]byte{make([]byte, 100_000)}},
	} {
		encoded := kit.Must(sent.MarshalBinary())(t)
		got := deliver(t, encoded, fsm.Delivery{}, DeliveryOptions{})
		if !cmp.Equal(sent.Data, got.Data) || !cmp.Equal(sent.Value, got.Value) || !cmp.Equal(sent.Sequence, got.Sequence) {
			t.Errorf("%s: %v", name, got)
		}
		if got.Header == nil || got.Properties == nil || got.Annotations == nil {
			t.Errorf("%s: a section is missing", name)
		}
	}
}

// Everything from the properties on is copied bit for bit, including decimals and described values of .NET
// (docs/service-bus-protocol.md#described-values).
func TestBareMessageUnchanged(t *testing.T) {
	t.Parallel()
	bare := wire.AppendProperties(nil, &wire.Properties{MessageID: uint64(5)})
	bare = section(bare, wire.SectionApplicationProperties, wire.Map{
		{Key: "span", Value: wire.Described{Descriptor: wire.Symbol("com.microsoft:timespan"), Value: int64(1)}},
		{Key: "decimal", Value: wire.Raw{0x74, 1, 2, 3, 4}},
		{Key: "wide", Value: wire.Raw{0x80, 0, 0, 0, 0, 0, 0, 0, 1}}, // not the shortest form
	})
	bare = section(bare, wire.SectionData, []byte("x"))
	bare = section(bare, wire.SectionFooter, wire.Map{})
	m := kit.Must(Parse(bare))(t)
	out, err := AppendDelivery(nil, testPlace(), fsm.Delivery{Payload: m.Payload}, DeliveryOptions{})
	if err != nil || !bytes.HasSuffix(out, bare) {
		t.Fatalf("%v\n%x\n%x", err, out, bare)
	}
	// Descriptors in other forms become smallulong (docs/service-bus-protocol.md#encoding-of-performatives).
	other := []byte{0, 0xa3, 16}
	other = append(other, "amqp:data:binary\xa0\x01y"...)
	if m, err = Parse(other); err != nil || !bytes.HasSuffix(m.Payload, []byte{0, 0x53, 0x75, 0xa0, 1, 'y'}) {
		t.Fatalf("%v %x", err, m.Payload)
	}
}

// rhea, which the JavaScript client uses, writes the footer before the body. The footer is accepted and
// delivered at its proper position (part 3, 3.2); a second footer is refused.
func TestFooterBeforeTheBodyIsAccepted(t *testing.T) {
	t.Parallel()
	footer := section(nil, wire.SectionFooter, wire.Map{{Key: wire.Symbol("x-footer"), Value: "end"}})
	body := section(nil, wire.SectionData, []byte("x"))
	m := kit.Must(Parse(slices.Concat(footer, body)))(t)
	if want := slices.Concat(body, footer); !bytes.HasSuffix(m.Payload, want) {
		t.Fatalf("%x does not end in %x", m.Payload, want)
	}
	if _, err := Parse(slices.Concat(footer, body, footer)); err == nil {
		t.Fatal("two footers were taken")
	}
}

// Annotations of the client whose types clients rely on.
func TestAnnotationsHaveTheTypesThatClientsExpect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		key, value any
		want       any // nil: dropped
	}{
		{"symbol key", wire.Symbol("x-opt-a"), "v", "v"},
		{"string key", "x-opt-a", "v", "v"},
		{"null kept", wire.Symbol("x-opt-b"), nil, nil},
		{"scheduled", wire.Symbol("x-opt-scheduled-enqueue-time"), time.UnixMilli(5).UTC(), time.UnixMilli(5).UTC()},
		{"scheduled as long", wire.Symbol("x-opt-scheduled-enqueue-time"), int64(5), time.UnixMilli(5).UTC()},
		{"scheduled null", wire.Symbol("x-opt-scheduled-enqueue-time"), nil, nil},
		{"partition key", wire.Symbol("x-opt-partition-key"), "p", "p"},
		{"partition key as symbol", wire.Symbol("x-opt-partition-key"), wire.Symbol("p"), "p"},
		{"partition key as binary", wire.Symbol("x-opt-partition-key"), []byte("p"), "p"},
		{"partition key null", wire.Symbol("x-opt-partition-key"), nil, nil},
		{"via partition key null", wire.Symbol("x-opt-via-partition-key"), nil, nil},
		{"partition id", wire.Symbol("x-opt-partition-id"), int16(1), nil},
		{"lock token", wire.Symbol("x-opt-lock-token"), "x", nil},
	} {
		encoded := section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: c.key, Value: c.value}})
		m := deliver(t, section(encoded, wire.SectionData, []byte{}), fsm.Delivery{}, DeliveryOptions{})
		name, _ := wire.AsText(c.key)
		got, present := m.Annotations[name]
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if present != (c.want != nil || c.name == "null kept") {
			t.Errorf("%s: present %v", c.name, present)
		}
	}
	// Numbers are reserved keys, which the broker does not interpret.
	encoded := section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: uint64(9), Value: true}})
	if m, err := Parse(encoded); err != nil || !bytes.Contains(m.Payload, []byte{0x53, 9, 0x41}) {
		t.Error(err, m.Payload)
	}
}

// NServiceBus marks each message that it sends in a transaction with the partition key of the message that it has received. The message
// may go to a partitioned entity, whose shard its own key chooses.
func TestViaPartitionKeyBindsToNoShard(t *testing.T) {
	t.Parallel()
	encoded := section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(viaPartitionKeyKey), Value: "received"}})
	m := kit.Must(Parse(section(encoded, wire.SectionData, []byte{})))(t)
	if key, bound := (&fsm.Entity{Shards: make([]fsm.Shard, 2)}).ShardKey(&m); bound || m.PartitionKey != "" {
		t.Errorf("bound to the shard of %q, partition key %q", key, m.PartitionKey)
	}
	got := deliver(t, section(encoded, wire.SectionData, []byte{}), fsm.Delivery{}, DeliveryOptions{})
	if got.Annotations[viaPartitionKeyKey] != "received" {
		t.Errorf("delivered with %v", got.Annotations)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	t.Parallel()
	data := section(nil, wire.SectionData, []byte{})
	annotation := func(key, value any) []byte {
		return append(section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: key, Value: value}}), data...)
	}
	property := func(key, value any) []byte {
		return append(section(nil, wire.SectionApplicationProperties, wire.Map{{Key: key, Value: value}}), data...)
	}
	field := func(i int, v any) []byte {
		list := make([]any, i+1)
		list[i] = v
		return append(section(nil, wire.SectionProperties, list), data...)
	}
	header := func(list ...any) []byte { return append(section(nil, wire.SectionHeader, list), data...) }
	for name, c := range map[string]struct {
		b    []byte
		want wire.Symbol
	}{
		"no section":                 {[]byte{0x40, 0x40, 0x40}, wire.ConditionDecodeError},
		"cut short":                  {[]byte{0, 0x53, 0x75, 0xa0, 5, 1}, wire.ConditionDecodeError},
		"second properties":          {append(field(0, "x"), field(0, "x")...), wire.ConditionDecodeError},
		"second value":               {section(section(nil, wire.SectionValue, true), wire.SectionValue, true), wire.ConditionDecodeError},
		"second footer":              {section(section(data, wire.SectionFooter, wire.Map{}), wire.SectionFooter, wire.Map{}), wire.ConditionDecodeError},
		"footer key of int":          {section(data, wire.SectionFooter, wire.Map{{Key: int32(1), Value: "v"}}), wire.ConditionDecodeError},
		"footer key not ASCII":       {section(data, wire.SectionFooter, wire.Map{{Key: "é", Value: "v"}}), wire.ConditionDecodeError},
		"footer key twice":           {section(data, wire.SectionFooter, wire.Map{{Key: "k", Value: "v"}, {Key: wire.Symbol("k"), Value: "w"}}), wire.ConditionDecodeError},
		"header durable":             {header("yes"), wire.ConditionDecodeError},
		"header priority":            {header(true, uint32(256)), wire.ConditionDecodeError},
		"header ttl":                 {header(true, uint8(1), uint64(1)<<32), wire.ConditionDecodeError},
		"damage inside header":       {append([]byte{0, 0x53, 0x70, 0xc0, 2, 9, 0x40}, data...), wire.ConditionDecodeError},
		"message-id of long":         {field(0, int64(1)), wire.ConditionDecodeError},
		"user-id of string":          {field(1, "x"), wire.ConditionDecodeError},
		"subject of symbol":          {field(3, wire.Symbol("x")), wire.ConditionDecodeError},
		"correlation-id of uint":     {field(5, uint32(7)), wire.ConditionDecodeError},
		"content-type of string":     {field(6, "x"), wire.ConditionDecodeError},
		"creation-time of long":      {field(9, int64(5)), wire.ConditionDecodeError},
		"group-id of binary":         {field(10, []byte{1}), wire.ConditionDecodeError},
		"group-sequence of int":      {field(11, int32(1)), wire.ConditionDecodeError},
		"fourteenth property":        {field(13, "x"), wire.ConditionDecodeError},
		"annotation key":             {annotation(true, true), wire.ConditionDecodeError},
		"scheduled time of string":   {annotation(wire.Symbol("x-opt-scheduled-enqueue-time"), "soon"), wire.ConditionInvalidField},
		"partition key of no text":   {annotation(wire.Symbol("x-opt-partition-key"), []byte{0xff}), wire.ConditionInvalidField},
		"partition key of int":       {annotation(wire.Symbol("x-opt-partition-key"), int32(1)), wire.ConditionInvalidField},
		"property key of symbol":     {property(wire.Symbol("k"), 1), wire.ConditionDecodeError},
		"property text not UTF-8":    {property("k", "\xff"), wire.ConditionDecodeError},
		"long message-id":            {field(0, strings.Repeat("é", NameCharactersMax+1)), wire.ConditionArgumentError},
		"long binary message-id":     {field(0, make([]byte, NameCharactersMax+1)), wire.ConditionArgumentError},
		"large property":             {property("k", strings.Repeat("x", propertyBytesMax)), wire.ConditionMessageSizeExceeded},
		"large annotation":           {annotation(wire.Symbol("k"), strings.Repeat("x", propertyBytesMax)), wire.ConditionMessageSizeExceeded},
		"large field":                {field(2, strings.Repeat("x", propertyBytesMax)), wire.ConditionMessageSizeExceeded},
		"too many properties":        {section(nil, wire.SectionApplicationProperties, manyProperties(propertiesBytesMax+1)), wire.ConditionMessageSizeExceeded},
		"properties and annotations": {section(section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: "k", Value: "v"}}), wire.SectionApplicationProperties, manyProperties(propertiesBytesMax-5)), wire.ConditionMessageSizeExceeded},
	} {
		_, err := Parse(c.b)
		var refused *Error
		if !errors.As(err, &refused) || refused.Condition != c.want || refused.Text == "" {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// manyProperties returns application properties whose encoded map has exactly size bytes: pairs of at most 10
// kB.
func manyProperties(size int) wire.Map {
	m := wire.Map{}
	for left := size - 9; left > 0; { // constructor, size, count
		pair := min(left, 10_000)
		if left-pair > 0 && left-pair < 300 {
			pair -= 300 // the last pair must be long enough for a size of four bytes
		}
		m = append(m, wire.Pair{Key: "k", Value: strings.Repeat("x", pair-3-5)})
		left -= pair
	}
	return m
}

// Values equal to the limits are accepted.
func TestValuesAtTheLimitsAreAccepted(t *testing.T) {
	t.Parallel()
	m := manyProperties(propertiesBytesMax)
	if n := len(wire.AppendMap(nil, m)); n != propertiesBytesMax {
		t.Fatalf("%d bytes", n)
	}
	pair := wire.Map{{Key: "k", Value: strings.Repeat("x", propertyBytesMax-3-5)}}
	for name, b := range map[string][]byte{
		"properties": section(nil, wire.SectionApplicationProperties, manyProperties(propertiesBytesMax)),
		"property":   section(nil, wire.SectionApplicationProperties, pair),
		"message-id": section(nil, wire.SectionProperties, []any{strings.Repeat("é", NameCharactersMax)}),
	} {
		if _, err := Parse(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMessageIDsOfAllTypesBecomeDistinctTexts(t *testing.T) {
	t.Parallel()
	id := wire.UUID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, ""},
		{"", ""},
		{"plain", "plain"},
		{"x:plain", "x:plain"},
		{"u:5", "s:u:5"},
		{"s:", "s:s:"},
		{uint64(5), "u:5"},
		{uint64(math.MaxUint64), "u:18446744073709551615"},
		{id, "g:00112233-4455-6677-8899-aabbccddeeff"},
		{[]byte{0xca, 0xfe}, "b:cafe"},
	} {
		m, err := Parse(section(nil, wire.SectionProperties, []any{c.v}))
		if err != nil || m.ID != c.want {
			t.Errorf("%v: %q, %v", c.v, m.ID, err)
		}
	}
}

func batch(messages ...[]byte) []byte {
	var b []byte
	for _, m := range messages {
		b = section(b, wire.SectionData, m)
	}
	return b
}

func TestBatchBecomesMessages(t *testing.T) {
	t.Parallel()
	one := kit.Must(fullMessage().MarshalBinary())(t)
	two := section(wire.AppendProperties(nil, &wire.Properties{MessageID: "two"}), wire.SectionData, []byte("2"))
	envelope := wire.AppendHeader(nil, &wire.Header{})
	envelope = wire.AppendProperties(envelope, &wire.Properties{MessageID: "of the envelope"})
	messages, err := ParseBatch(append(envelope, batch(one, two, one)...))
	if err != nil || len(messages) != 3 {
		t.Fatal(err)
	}
	for i, b := range [][]byte{one, two, one} {
		alone := kit.Must(Parse(b))(t)
		if diff := cmp.Diff(alone, messages[i]); diff != "" {
			t.Errorf("message %d: %s", i, diff)
		}
	}
	// The fields of a payload cannot extend into the next payload.
	_ = append(messages[0].Payload, 0xff)
	if again, _ := Parse(two); !bytes.Equal(again.Payload, messages[1].Payload) {
		t.Error("payloads share capacity")
	}
}

func TestMalformedBatchesAreRefused(t *testing.T) {
	t.Parallel()
	many, envelope := make([][]byte, BatchMessagesMax+1), wire.AppendHeader(nil, &wire.Header{})
	if _, err := ParseBatch(batch(many[1:]...)); err != nil {
		t.Errorf("%d messages: %v", BatchMessagesMax, err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want wire.Symbol
	}{
		"nothing":       {nil, wire.ConditionArgumentError},
		"only envelope": {wire.AppendHeader(nil, &wire.Header{}), wire.ConditionArgumentError},
		"too many":      {batch(many...), wire.ConditionMessageSizeExceeded},
		"value":         {section(nil, wire.SectionValue, true), wire.ConditionDecodeError},
		"second header": {append(append(envelope, envelope...), batch(nil)...), wire.ConditionDecodeError},
		"bad message":   {batch(nil, []byte("no message")), wire.ConditionDecodeError},
		"cut short":     {batch(make([]byte, 10))[:8], wire.ConditionDecodeError},
	} {
		_, err := ParseBatch(c.b)
		var refused *Error
		if !errors.As(err, &refused) || refused.Condition != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Damaged storage causes an error, never a panic and never a malformed message.
func TestDamagedPayloadIsRefused(t *testing.T) {
	t.Parallel()
	encoded := kit.Must(fullMessage().MarshalBinary())(t)
	m := kit.Must(Parse(encoded))(t)
	bad := map[string][]byte{"empty": nil, "version": {2, 0, 0, 0, 0, 0}, "flags": {1, 0x80, 0, 0, 0, 0}, "numbers": {1, 0, 200}}
	for cut := range 20 {
		bad[string(rune('a'+cut))] = m.Payload[:cut]
	}
	for name, payload := range bad {
		dst := []byte("before")
		out, err := AppendDelivery(dst, testPlace(), fsm.Delivery{Payload: payload}, DeliveryOptions{})
		if !errors.Is(err, errPayload) || string(out) != "before" {
			t.Errorf("%s: %v, %d bytes", name, err, len(out))
		}
	}
	for _, patches := range [][]byte{{99}, fsm.AppendPatches(nil, []fsm.Patch{{Properties: []byte{0xa1, 9}}})} {
		if _, err := AppendDelivery(nil, testPlace(), fsm.Delivery{Payload: m.Payload, Patches: patches}, DeliveryOptions{}); err == nil {
			t.Errorf("patches %x accepted", patches)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	full, err := fullMessage().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add(encodedMessage(f, []byte("x")))
	f.Add(batch(full, nil))
	f.Add(section(nil, wire.SectionApplicationProperties, wire.Map{{Key: "DeadLetterReason", Value: nil}}))
	patches := fsm.AppendPatches(nil, []fsm.Patch{{DeadLetter: true, Reason: "r", Properties: []byte{0xa1, 1, 'k', 0x41}}})
	changed := fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: 3, Source: "q", Changes: []fsm.Change{
		setUser("A", filter.Text("x")), removed(filter.User, "c"), setUser("deadletterreason", filter.Int(1)),
		setSystem(filter.Label, filter.Text("l")), removed(filter.System, filter.SessionID), removed(filter.System, filter.MessageID),
	}}})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ParseBatch(b)
		m, err := Parse(b)
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) {
				t.Fatalf("%T", err)
			}
			return
		}
		for _, p := range [][]byte{nil, patches, changed} {
			d := fsm.Delivery{Lock: fsm.LockID{Sequence: 5}, LockedUntil: 1, Payload: m.Payload, Patches: p}
			out, err := AppendDelivery(nil, testPlace(), d, DeliveryOptions{})
			if err != nil {
				t.Fatalf("taken, but cannot be delivered: %v", err)
			}
			// A delivered message is accepted again, as the same message.
			again, err := Parse(out)
			if err != nil {
				var refused *Error
				if errors.As(err, &refused) && refused.Condition == wire.ConditionMessageSizeExceeded {
					return // patches and the broker's annotations make it longer
				}
				t.Fatalf("delivered, but cannot be taken: %v\n%x", err, out)
			}
			if again.ID != m.ID {
				t.Fatalf("id %q became %q", m.ID, again.ID)
			}
		}
	})
}

func benchmarkMessage(b *testing.B) []byte {
	b.Helper()
	m := goamqp.NewMessage(make([]byte, 1024))
	m.ApplicationProperties = map[string]any{"kind": "order", "attempt": int64(1)}
	encoded, err := m.MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	return encoded
}

func BenchmarkParseMessage(b *testing.B) {
	encoded := benchmarkMessage(b)
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendDelivery(b *testing.B) {
	m, err := Parse(benchmarkMessage(b))
	if err != nil {
		b.Fatal(err)
	}
	d := fsm.Delivery{Lock: fsm.LockID{Sequence: 123456}, State: fsm.Locked, Enqueued: 1, LockedUntil: 2, Payload: m.Payload}
	dst := make([]byte, 0, 4096)
	place := testPlace()
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = AppendDelivery(dst[:0], place, d, DeliveryOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(dst)))
}
