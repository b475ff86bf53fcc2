package message

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/kit"
)

func system(name string, v filter.Value) fsm.Property {
	return fsm.Property{Name: filter.Property{Scope: filter.System, Name: name}, Value: v}
}

func user(name string, v filter.Value) fsm.Property {
	return fsm.Property{Name: filter.Property{Scope: filter.User, Name: name}, Value: v}
}

// asked returns the properties of an encoded message that rules can refer to.
func asked(t testing.TB, encoded []byte) []fsm.Property {
	t.Helper()
	m := kit.Must(Parse(encoded))(t)
	return askedOf(t, new(RuleReader), m.Payload)
}

func askedOf(t testing.TB, r *RuleReader, payload []byte) []fsm.Property {
	t.Helper()
	properties := kit.Must(r.read(payload))(t)
	decoded := kit.Must(fsm.DecodeProperties(properties))(t)
	return decoded
}

func TestRulesSeeThePropertiesOfAMessage(t *testing.T) {
	t.Parallel()
	in := time.UnixMilli(1_800_000_000_000).UTC()
	b := section(nil, wire.SectionMessageAnnotations, wire.Map{
		{Key: wire.Symbol(partitionKeyKey), Value: "session"},
		{Key: wire.Symbol(viaPartitionKeyKey), Value: "via"},
		{Key: wire.Symbol(ScheduledEnqueueTimeKey), Value: in},
		{Key: wire.Symbol("x-opt-own"), Value: "not a property"},
	})
	contentType := wire.Symbol("text/plain")
	b = wire.AppendProperties(b, &wire.Properties{
		MessageID: "id", UserID: []byte("who"), To: "to", Subject: ptr("label"), ReplyTo: "reply", CorrelationID: "corr",
		ContentType: &contentType, GroupID: ptr("session"), GroupSequence: ptr(uint32(1)), ReplyToGroupID: ptr("answers"),
	})
	b = section(b, wire.SectionApplicationProperties, wire.Map{
		{Key: "Color", Value: "red"},
		{Key: "none", Value: nil},
		{Key: "list", Value: []any{"no"}},
		{Key: "DeadLetterReason", Value: "why"},
		{Key: "DeadLetterErrorDescription", Value: "because"},
	})
	want := []fsm.Property{
		system(filter.MessageID, filter.Text("id")), system(filter.To, filter.Text("to")), system(filter.Label, filter.Text("label")),
		system(filter.ReplyTo, filter.Text("reply")), system(filter.CorrelationID, filter.Text("corr")),
		system(filter.ContentType, filter.Text("text/plain")), system(filter.SessionID, filter.Text("session")),
		system(filter.ReplyToSessionID, filter.Text("answers")),
		system(filter.PartitionKey, filter.Text("session")), system(filter.ViaPartitionKey, filter.Text("via")),
		system(filter.ScheduledEnqueueTimeUTC, filter.Time(in.UnixMilli())),
		user("Color", filter.Text("red")), user("none", filter.Value{}),
		user("DeadLetterReason", filter.Text("why")), system(filter.DeadLetterReason, filter.Text("why")),
		user("DeadLetterErrorDescription", filter.Text("because")), system(filter.DeadLetterErrorDescription, filter.Text("because")),
	}
	if diff := cmp.Diff(want, asked(t, b), cmp.Comparer(sameValue)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Rules see ids of every type as text, because a filter compares them with text.
func TestRulesSeeIDsAsText(t *testing.T) {
	t.Parallel()
	for id, want := range map[any]filter.Value{
		"text": filter.Text("text"), uint64(77): filter.Text("77"), uint64(math.MaxUint64): filter.Text("1.8446744073709552E+19"),
		wire.UUID{0xc0, 0xff, 0xee, 15: 1}: filter.Text("c0ffee00-0000-0000-0000-000000000001"),
	} {
		b := wire.AppendProperties(nil, &wire.Properties{MessageID: id, CorrelationID: id})
		got := asked(t, b)
		if diff := cmp.Diff([]fsm.Property{system(filter.MessageID, want), system(filter.CorrelationID, want)}, got, cmp.Comparer(sameValue)); diff != "" {
			t.Errorf("%T: %s", id, diff)
		}
	}
}

// The buffer of the reader is reused, and contains nothing of the previous message.
func TestRuleReaderKeepsNothingOfTheLastMessage(t *testing.T) {
	t.Parallel()
	var r RuleReader
	payload := func(n int) []byte {
		properties := wire.Map{}
		for i := range n {
			properties = append(properties, wire.Pair{Key: fmt.Sprint("p", i), Value: int32(i)})
		}
		m := kit.Must(Parse(section(nil, wire.SectionApplicationProperties, properties)))(t)
		return m.Payload
	}
	for _, n := range []int{3, 1, 0, ruleListKept + 1, 2} {
		if got := askedOf(t, &r, payload(n)); len(got) != n {
			t.Errorf("%d properties, want %d", len(got), n)
		}
		for _, p := range r.list[:cap(r.list)] {
			if p != (fsm.Property{}) {
				t.Fatalf("keeps %v", p)
			}
		}
		if cap(r.list) > 2*ruleListKept {
			t.Errorf("keeps room for %d", cap(r.list))
		}
	}
}

// The properties that rules can refer to may be larger than the sections. A topic refuses a message whose
// properties are too large, with an explanation.
func TestRulePropertiesBytesMax(t *testing.T) {
	t.Parallel()
	long := func(n int) []byte {
		properties := wire.Map{{Key: "text", Value: strings.Repeat("x", n)}}
		for i := range 3500 { // a float takes 5 bytes on the wire and 9 as a decimal
			properties = append(properties, wire.Pair{Key: fmt.Sprintf("p%04d", i), Value: float32(1)})
		}
		return section(nil, wire.SectionApplicationProperties, properties)
	}
	const some = 300
	bytesLeft := rulePropertiesBytesMax - len(fsm.AppendProperties(nil, asked(t, long(some))))
	for n, ok := range map[int]bool{some + bytesLeft: true, some + bytesLeft + 1: false} {
		m := kit.Must(Parse(long(n)))(t)
		properties, err := new(RuleReader).read(m.Payload)
		var refused *Error
		switch {
		case ok && (err != nil || len(properties) != rulePropertiesBytesMax):
			t.Errorf("%d: %d bytes, %v", n, len(properties), err)
		case !ok && (!errors.As(err, &refused) || refused.Condition != wire.ConditionMessageSizeExceeded):
			t.Errorf("%d: %v", n, err)
		}
		again, err := Reread(m.Payload, nil) // it may be forwarded to a queue, which does not need the properties
		if err != nil || !ok && len(again.Properties) <= rulePropertiesBytesMax {
			t.Errorf("%d, read again: %d bytes, %v", n, len(again.Properties), err)
		}
	}
}

// Reread returns a stored message as it was sent: same id, same lifetime, same payload, and the properties
// that rules can refer to.
func TestRereadReturnsTheMessageAsSent(t *testing.T) {
	t.Parallel()
	sent := fullMessage()
	encoded := kit.Must(sent.MarshalBinary())(t)
	m := kit.Must(Parse(encoded))(t)
	if m.PartitionKey != "session" {
		t.Errorf("partition key %q", m.PartitionKey)
	}
	again := kit.Must(Reread(m.Payload, nil))(t)
	m.Properties = kit.Must(new(RuleReader).read(m.Payload))(t)
	if diff := cmp.Diff(m, again); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRereadAppliesPatches(t *testing.T) {
	t.Parallel()
	created := time.UnixMilli(1000).UTC()
	expires := created.Add(100 * 24 * time.Hour)
	b := wire.AppendHeader(nil, &wire.Header{TTL: ptr(uint32(math.MaxUint32))})
	b = section(b, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(ScheduledEnqueueTimeKey), Value: time.UnixMilli(5)}})
	b = wire.AppendProperties(b, &wire.Properties{MessageID: uint64(7), AbsoluteExpiryTime: &expires, CreationTime: &created})
	m := kit.Must(Parse(section(b, wire.SectionApplicationProperties, wire.Map{{Key: "a", Value: "b"}})))(t)
	patches := fsm.AppendPatches(nil, []fsm.Patch{
		{Changes: []fsm.Change{
			{Property: filter.Property{Scope: filter.System, Name: filter.MessageID}, Value: filter.Text("u:8")},
			{Property: filter.Property{Scope: filter.User, Name: "A"}, Value: filter.Int(5)},
		}},
		{Enqueued: 3, Source: "old"},
		{Source: "Queue"},
		{DeadLetter: true, Reason: "why"},
	})
	got := kit.Must(Reread(m.Payload, patches))(t)
	if got.ID != "s:u:8" || got.TimeToLive != fsm.Millis(100*24*time.Hour/time.Millisecond) || got.EnqueueAt != 0 || string(got.Payload) != string(m.Payload) {
		t.Errorf("%+v", got)
	}
	properties := kit.Must(fsm.DecodeProperties(got.Properties))(t)
	want := []fsm.Property{
		system(filter.DeadLetterSource, filter.Text("queue")), system(filter.MessageID, filter.Text("u:8")),
		system(filter.ScheduledEnqueueTimeUTC, filter.Time(5)), user("a", filter.Int(5)),
		user("DeadLetterReason", filter.Text("why")), system(filter.DeadLetterReason, filter.Text("why")),
	}
	if diff := cmp.Diff(want, properties, cmp.Comparer(sameValue)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for name, c := range map[string][2][]byte{"payload": {{9, 9}, nil}, "patches": {m.Payload, {99}}} {
		if _, err := Reread(c[0], c[1]); err == nil {
			t.Errorf("damaged %s read", name)
		}
	}
}

// For every accepted message, rules see exactly what a decoder of values sees, and reading it for them never
// fails.
func FuzzRuleProperties(f *testing.F) {
	full, err := fullMessage().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	var every wire.Map
	for name, c := range typedValues() {
		every = append(every, wire.Pair{Key: name, Value: c.wire})
	}
	f.Add(section(wire.AppendProperties(nil, &wire.Properties{MessageID: uint64(9), CorrelationID: wire.UUID{1}, To: "x"}), wire.SectionApplicationProperties, every))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		properties, err := new(RuleReader).read(m.Payload)
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) || refused.Condition != wire.ConditionMessageSizeExceeded {
				t.Fatalf("taken, but not read: %v", err)
			}
			return
		}
		got := kit.Must(fsm.DecodeProperties(properties))(t)
		if v, err := openPayload(m.Payload); err != nil || !decodable(v.properties) {
			return
		}
		if want := naiveProperties(t, m.Payload); !slices.Equal(want, got) {
			t.Fatalf("(-decoder +reader)\n%s", cmp.Diff(want, got, cmp.Comparer(sameValue)))
		}
		again, err := Reread(m.Payload, nil)
		if err != nil || again.ID != m.ID || again.TimeToLive != m.TimeToLive || string(again.Properties) != string(properties) {
			t.Fatalf("read again: %+v, %v", again, err)
		}
	})
}

// decodable is false for the only case that Parse accepts and the decoder does not: a content-type with
// invalid characters.
func decodable(section []byte) bool {
	if len(section) == 0 {
		return true
	}
	_, err := wire.DecodeProperties(section[sectionDescriptorBytes:])
	return err == nil
}

// naiveProperties decodes everything and selects the properties.
func naiveProperties(t testing.TB, payload []byte) (all []fsm.Property) {
	t.Helper()
	d := sectionsOf(t, fsm.Delivery{Payload: payload})
	p := d.properties
	for _, field := range []struct {
		name string
		v    any
	}{
		{filter.MessageID, p.MessageID},
		{filter.To, p.To},
		{filter.Label, p.Subject},
		{filter.ReplyTo, p.ReplyTo},
		{filter.CorrelationID, p.CorrelationID},
		{filter.ContentType, p.ContentType},
		{filter.SessionID, p.GroupID},
		{filter.ReplyToSessionID, p.ReplyToGroupID},
	} {
		switch v := field.v.(type) {
		case nil:
		case *string:
			if v != nil {
				all = append(all, system(field.name, filter.Text(*v)))
			}
		case *wire.Symbol:
			if v != nil {
				all = append(all, system(field.name, filter.Text(string(*v))))
			}
		case uint64:
			all = append(all, system(field.name, filter.Text(filter.Uint(v).String())))
		case wire.UUID:
			all = append(all, system(field.name, filter.Text(filter.GUID(v).String())))
		default:
			one, _ := naiveValue(v)
			all = append(all, system(field.name, one))
		}
	}
	for _, a := range d.annotations {
		switch name := a.Key; name {
		case wire.Symbol(partitionKeyKey), wire.Symbol(viaPartitionKeyKey), wire.Symbol(ScheduledEnqueueTimeKey):
			v, _ := naiveValue(a.Value)
			all = append(all, system(map[any]string{
				wire.Symbol(partitionKeyKey): filter.PartitionKey, wire.Symbol(viaPartitionKeyKey): filter.ViaPartitionKey,
				wire.Symbol(ScheduledEnqueueTimeKey): filter.ScheduledEnqueueTimeUTC,
			}[name], v))
		}
	}
	for _, a := range d.application {
		v, ok := naiveValue(a.Value)
		name, isString := a.Key.(string)
		if !ok || !isString {
			continue
		}
		all = append(all, user(name, v))
		if name == filter.DeadLetterReason || name == filter.DeadLetterErrorDescription {
			all = append(all, system(name, v))
		}
	}
	return all
}

// naiveValue maps a decoded value; decimals are tested by TestRuleValuesAreReadAndWrittenAsAMQP alone.
func naiveValue(v any) (filter.Value, bool) {
	switch v := v.(type) {
	case nil:
		return filter.Value{}, true
	case bool:
		return filter.Bool(v), true
	case uint8:
		return filter.Int(int64(v)), true
	case uint16:
		return filter.Int(int64(v)), true
	case uint32:
		return filter.Int(int64(v)), true
	case uint64:
		return filter.Uint(v), true
	case int8:
		return filter.Int(int64(v)), true
	case int16:
		return filter.Int(int64(v)), true
	case int32:
		return filter.Int(int64(v)), true
	case int64:
		return filter.Int(v), true
	case float32:
		return filter.Double(float64(v)), true
	case float64:
		return filter.Double(v), true
	case string:
		return filter.Text(v), true
	case wire.Symbol:
		return filter.Text(string(v)), true
	case wire.Char:
		return filter.Text(string(rune(v))), true
	case time.Time:
		return filter.Time(v.UnixMilli()), true
	case wire.UUID:
		return filter.ID(filter.GUID(v)), true
	case []byte:
		return filter.Binary(v), true
	case wire.Raw:
		if data, ok := wire.DecimalOf(v); ok {
			return decimalValue(data), true
		}
	case wire.Described:
		text, isText := v.Value.(string)
		ticks, isLong := naiveValue(v.Value)
		isLong = isLong && ticks.Kind() == filter.KindInt
		switch v.Descriptor {
		case wire.Symbol("com.microsoft:uri"):
			return filter.Text(text), isText
		case wire.Symbol("com.microsoft:timespan"):
			_, unsigned := wire.UintOf(wire.AppendValue(nil, v.Value))
			return filter.Span(ticks.AsInt()), isLong && !unsigned
		case wire.Symbol("com.microsoft:datetime-offset"):
			_, unsigned := wire.UintOf(wire.AppendValue(nil, v.Value))
			return filter.Time((ticks.AsInt() - ticksOf1970) / 10000), isLong && !unsigned
		}
	}
	return filter.Value{}, false
}

func benchmarkProperties(b *testing.B, encoded []byte) {
	b.Helper()
	m, err := Parse(encoded)
	if err != nil {
		b.Fatal(err)
	}
	var r RuleReader
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.read(m.Payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRuleProperties measures the additional cost of a message to a topic over one to a queue.
func BenchmarkRuleProperties(b *testing.B) {
	b.Run("usual", func(b *testing.B) { benchmarkProperties(b, benchmarkMessage(b)) })
	b.Run("full", func(b *testing.B) {
		encoded, err := fullMessage().MarshalBinary()
		if err != nil {
			b.Fatal(err)
		}
		benchmarkProperties(b, encoded)
	})
	b.Run("bare", func(b *testing.B) { benchmarkProperties(b, encodedMessage(b, make([]byte, 1024))) })
}

func BenchmarkReread(b *testing.B) {
	m, err := Parse(benchmarkMessage(b))
	if err != nil {
		b.Fatal(err)
	}
	patches := fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: 5, Source: "queue"}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Reread(m.Payload, patches); err != nil {
			b.Fatal(err)
		}
	}
}
