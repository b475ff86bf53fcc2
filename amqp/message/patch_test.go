package message

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/kit"
)

func millis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func setUser(name string, v filter.Value) fsm.Change {
	return fsm.Change{Property: filter.Property{Scope: filter.User, Name: name}, Value: v}
}

func setSystem(name string, v filter.Value) fsm.Change {
	return fsm.Change{Property: filter.Property{Scope: filter.System, Name: name}, Value: v}
}

func removed(scope filter.Scope, name string) fsm.Change {
	return fsm.Change{Property: filter.Property{Scope: scope, Name: name}, Remove: true}
}

// patched delivers a message with patches.
func patched(t *testing.T, encoded []byte, patches ...fsm.Patch) sections {
	t.Helper()
	m := kit.Must(Parse(encoded))(t)
	return sectionsOf(t, fsm.Delivery{Lock: fsm.LockID{Sequence: 9}, Payload: m.Payload, Patches: fsm.AppendPatches(nil, patches)})
}

// Actions change user properties ignoring case, the first spelling is kept, and settlements and dead-lettering
// apply to the changed properties.
func TestChangedUserProperties(t *testing.T) {
	t.Parallel()
	own := wire.Map{{Key: "Color", Value: "red"}, {Key: "color", Value: "RED"}, {Key: "size", Value: uint8(5)}, {Key: "KEEP", Value: wire.Symbol("s")}}
	for name, c := range map[string]struct {
		patches []fsm.Patch
		want    wire.Map
	}{
		"set":        {[]fsm.Patch{{Changes: []fsm.Change{setUser("COLOR", filter.Text("blue"))}}}, wire.Map{{Key: "Color", Value: "blue"}, {Key: "size", Value: uint8(5)}, {Key: "KEEP", Value: wire.Symbol("s")}}},
		"set twice":  {[]fsm.Patch{{Changes: []fsm.Change{setUser("color", filter.Int(1)), setUser("Color", filter.Int(2))}}}, wire.Map{{Key: "Color", Value: int64(2)}, {Key: "size", Value: uint8(5)}, {Key: "KEEP", Value: wire.Symbol("s")}}},
		"set new":    {[]fsm.Patch{{Changes: []fsm.Change{setUser("RuleName", filter.Text("r"))}}}, append(append(wire.Map{}, own...), wire.Pair{Key: "RuleName", Value: "r"})},
		"set null":   {[]fsm.Patch{{Changes: []fsm.Change{setUser("SIZE", filter.Value{})}}}, wire.Map{own[0], own[1], {Key: "size", Value: nil}, own[3]}},
		"remove":     {[]fsm.Patch{{Changes: []fsm.Change{removed(filter.User, "COLOR"), removed(filter.User, "nothing")}}}, wire.Map{own[2], own[3]}},
		"and again":  {[]fsm.Patch{{Changes: []fsm.Change{removed(filter.User, "color"), setUser("cOLOR", filter.Int(3))}}}, wire.Map{own[2], own[3], {Key: "cOLOR", Value: int64(3)}}},
		"new, again": {[]fsm.Patch{{Changes: []fsm.Change{setUser("N", filter.Int(1)), setUser("n", filter.Int(2)), removed(filter.User, "N")}}}, own},
		"all": {[]fsm.Patch{{Changes: []fsm.Change{
			removed(filter.User, "color"), removed(filter.User, "size"), removed(filter.User, "keep"),
		}}}, nil},
		"then settled": {[]fsm.Patch{
			{Changes: []fsm.Change{removed(filter.User, "color"), removed(filter.User, "keep")}},
			{Properties: encodePatch(t, wire.Map{{Key: "Color", Value: "green"}}), DeadLetter: true, Reason: "why"},
			{Changes: []fsm.Change{setUser("COLOR", filter.Bool(true))}},
		}, wire.Map{own[2], {Key: "Color", Value: true}, {Key: "DeadLetterReason", Value: "why"}}},
		"reason of a wrong type": {[]fsm.Patch{{Changes: []fsm.Change{
			removed(filter.User, "color"), removed(filter.User, "size"), removed(filter.User, "keep"),
			setUser("DeadLetterReason", filter.Int(5)), setUser("DeadLetterErrorDescription", filter.Value{}),
		}}}, wire.Map{{Key: "DeadLetterReason", Value: "5"}}},
		"reason in another case": {[]fsm.Patch{{Changes: []fsm.Change{
			removed(filter.User, "color"), removed(filter.User, "size"), removed(filter.User, "keep"),
			setUser("DeadLetterReason", filter.Text("x")), setUser("deadletterreason", filter.Bool(true)),
		}}}, wire.Map{{Key: "DeadLetterReason", Value: "True"}}},
	} {
		got := patched(t, section(nil, wire.SectionApplicationProperties, own), c.patches...)
		if diff := cmp.Diff(c.want, got.application); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	if got := patched(t, section(nil, wire.SectionData, []byte("x")), fsm.Patch{Changes: []fsm.Change{setUser("a", filter.Int(1))}}); !cmp.Equal(got.application, wire.Map{{Key: "a", Value: int64(1)}}) {
		t.Errorf("without own: %v", got.application)
	}
}

// Actions change those system properties that are fields, and keep their types; the other fields are unchanged
// bit for bit. A message keeps an id.
func TestActionsChangeFieldsAndKeepTheirTypes(t *testing.T) {
	t.Parallel()
	contentType := wire.Symbol("a/b")
	own := wire.Properties{
		MessageID: uint64(5), UserID: []byte("u"), To: "to", Subject: ptr("s"), ReplyTo: "r", CorrelationID: wire.UUID{1},
		ContentType: &contentType, GroupID: ptr("g"), GroupSequence: ptr(uint32(3)), ReplyToGroupID: ptr("rg"),
	}
	encoded := section(wire.AppendProperties(nil, &own), wire.SectionData, []byte("x"))
	long := strings.Repeat("ä", NameCharactersMax+1)
	got := patched(t, encoded, fsm.Patch{Changes: []fsm.Change{
		setSystem(filter.MessageID, filter.Text(long)), setSystem(filter.To, filter.Text(long)), setSystem(filter.Label, filter.Text("label")),
		setSystem(filter.ReplyTo, filter.Int(5)), setSystem(filter.CorrelationID, filter.ID(filter.GUID{15: 1})),
		setSystem(filter.ContentType, filter.Text("c/d")), setSystem(filter.SessionID, filter.Text(long)), setSystem(filter.ReplyToSessionID, filter.Text("")),
		setSystem(filter.SequenceNumber, filter.Int(1)), setSystem("nonsense", filter.Int(1)),
	}})
	changed := wire.Symbol("c/d")
	short := strings.Repeat("ä", NameCharactersMax)
	want := wire.Properties{
		MessageID: short, UserID: []byte("u"), To: long, Subject: ptr("label"), ReplyTo: "5", CorrelationID: "00000000-0000-0000-0000-000000000001",
		ContentType: &changed, GroupID: &short, GroupSequence: ptr(uint32(3)), ReplyToGroupID: ptr(""),
	}
	if diff := cmp.Diff(want, got.properties); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	got = patched(t, encoded,
		fsm.Patch{Changes: []fsm.Change{removed(filter.System, filter.Label), setSystem(filter.SessionID, filter.Value{}), removed(filter.System, filter.MessageID)}},
		fsm.Patch{Changes: []fsm.Change{setSystem(filter.MessageID, filter.Value{}), setSystem(filter.To, filter.Text("x")), removed(filter.System, filter.To)}})
	want = own
	want.Subject, want.GroupID, want.To = nil, nil, nil
	if diff := cmp.Diff(want, got.properties); diff != "" {
		t.Errorf("removed (-want +got)\n%s", diff)
	}
	got = patched(t, section(nil, wire.SectionData, []byte("x")), fsm.Patch{Changes: []fsm.Change{setSystem(filter.Label, filter.Text("l"))}})
	if diff := cmp.Diff(wire.Properties{Subject: ptr("l")}, got.properties); diff != "" {
		t.Errorf("without own (-want +got)\n%s", diff)
	}
}

// The shortened lifetime is reported also if an action has changed the length of the fields before the two
// times.
func TestChangedFieldsAndExpiry(t *testing.T) {
	t.Parallel()
	created, expires := ptr(millis(1000)), ptr(millis(9_000_000))
	m, err := Parse(wire.AppendProperties(nil, &wire.Properties{MessageID: "id", Subject: ptr("short"), CreationTime: created, AbsoluteExpiryTime: expires}))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", strings.Repeat("x", 300)} {
		got := sectionsOf(t, fsm.Delivery{
			Payload: m.Payload, Enqueued: 5000, Expires: 7000,
			Patches: fsm.AppendPatches(nil, []fsm.Patch{{Changes: []fsm.Change{setSystem(filter.Label, filter.Text(text))}}}),
		})
		if p := got.properties; *p.Subject != text || !p.CreationTime.Equal(*created) || !p.AbsoluteExpiryTime.Equal(millis(3000)) {
			t.Errorf("%+v", p)
		}
	}
}

// A delivery reports where the message was first sent, and from whose dead-letter queue it was forwarded.
func TestForwardedDeliveryReportsItsOrigin(t *testing.T) {
	t.Parallel()
	dead := func(p *fsm.EntityRef) { p.Sub = fsm.DeadLetterQueue }
	stranded := func(p *fsm.EntityRef) { p.Sub = fsm.TransferDeadLetterQueue }
	main := func(*fsm.EntityRef) {}
	m := kit.Must(Parse(section(nil, wire.SectionData, []byte("x"))))(t)
	for name, c := range map[string]struct {
		patches []fsm.Patch
		topic   fsm.SequenceNumber
		place   func(*fsm.EntityRef)
		number  any // nil: none is shown
		source  any
	}{
		"own":               {nil, 0, main, nil, nil},
		"of the topic":      {nil, 4, main, int64(4), nil},
		"of the same":       {nil, 9, main, int64(9), nil},
		"forwarded":         {[]fsm.Patch{{Enqueued: 2}}, 4, main, int64(2), nil},
		"same number":       {[]fsm.Patch{{Enqueued: 9}}, 0, main, int64(9), nil},
		"twice":             {[]fsm.Patch{{Enqueued: 2, Source: "A"}, {Source: "Topic/Subscriptions/B"}, {Properties: encodePatch(t, wire.Map{{Key: "a", Value: "b"}})}}, 0, main, int64(2), "topic/subscriptions/b"},
		"dead":              {nil, 0, dead, nil, nil},
		"dead again":        {[]fsm.Patch{{Enqueued: 2, Source: "A"}}, 0, dead, int64(2), "a"},
		"cannot be brought": {[]fsm.Patch{{DeadLetter: true, Reason: "r"}}, 7, stranded, int64(7), nil},
	} {
		got := sectionsOf(t, fsm.Delivery{Lock: fsm.LockID{Sequence: 9}, Payload: m.Payload, Topic: c.topic, Patches: fsm.AppendPatches(nil, c.patches)}, c.place)
		at := func(key wire.Symbol) any {
			for _, p := range got.annotations {
				if p.Key == key {
					return p.Value
				}
			}
			return nil
		}
		if at(EnqueueSequenceNumberKey) != c.number || at(sequenceNumberKey) != int64(9) || at(DeadLetterSourceKey) != c.source {
			t.Errorf("%s: %v", name, got.annotations)
		}
	}
}

// A message that was only forwarded is copied unchanged, including described values.
func TestForwardedIsCopied(t *testing.T) {
	t.Parallel()
	encoded := kit.Must(fullMessage().MarshalBinary())(t)
	m := kit.Must(Parse(encoded))(t)
	v := kit.Must(openPayload(m.Payload))(t)
	out, err := AppendDelivery(nil, testPlace(), fsm.Delivery{Payload: m.Payload, Patches: fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: 5, Source: "q"}})}, DeliveryOptions{})
	if err != nil || !strings.HasSuffix(string(out), string(v.bare)) {
		t.Errorf("%v: bare message is another", err)
	}
}

func TestTextIsTruncatedAtACharacter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc", "äöü": "äöü", "äöüß": "äöü", "日本語": "日本語", "日本語x": "日本語"} {
		if got := truncateCharacters(text, 3); got != want || utf8.RuneCountInString(got) > 3 {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// Many changes of many properties build the index that ignores case only once.
func BenchmarkChanges(b *testing.B) {
	properties := wire.Map{}
	for i := range 1000 {
		properties = append(properties, wire.Pair{Key: fmt.Sprint("Property", i), Value: int32(i)})
	}
	m, err := Parse(section(nil, wire.SectionApplicationProperties, properties))
	if err != nil {
		b.Fatal(err)
	}
	for name, n := range map[string]int{"1": 1, "32": 32} {
		var p fsm.Patch
		for i := range n {
			p.Changes = append(p.Changes, setUser(fmt.Sprint("property", i*30), filter.Text("new")))
		}
		d := fsm.Delivery{Payload: m.Payload, Patches: fsm.AppendPatches(nil, []fsm.Patch{p})}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := AppendDelivery(nil, testPlace(), d, DeliveryOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Actions change the annotations that are system properties, and leave the others.
func TestActionsChangeAnnotations(t *testing.T) {
	t.Parallel()
	encoded := section(nil, wire.SectionMessageAnnotations, wire.Map{
		{Key: wire.Symbol("x-opt-partition-key"), Value: "old"}, {Key: wire.Symbol("x-own"), Value: int32(1)},
	})
	got := patched(t, encoded, fsm.Patch{Changes: []fsm.Change{
		setSystem(filter.PartitionKey, filter.Text("new")), setSystem(filter.ScheduledEnqueueTimeUTC, filter.Time(86_400_000)),
		setSystem(filter.ViaPartitionKey, filter.Text("via")),
	}})
	for key, want := range map[string]any{
		"x-opt-partition-key": "new", "x-own": int32(1), "x-opt-via-partition-key": "via", "x-opt-scheduled-enqueue-time": millis(86_400_000),
	} {
		if v := got.annotations.Get(key); !cmp.Equal(v, want) {
			t.Errorf("%s is %v, want %v", key, v, want)
		}
	}
	got = patched(t, encoded, fsm.Patch{Changes: []fsm.Change{removed(filter.System, filter.PartitionKey)}})
	if v := got.annotations.Get("x-opt-partition-key"); v != nil || got.annotations.Get("x-own") != int32(1) {
		t.Errorf("after REMOVE sys.PartitionKey the annotations are %v", got.annotations)
	}
}

// SET sys.TimeToLive determines the time to live of a forwarded message, and what a dead letter shows, whichever of the two
// forms the sender used.
func TestActionsChangeTheTimeToLive(t *testing.T) {
	t.Parallel()
	minutes := func(n int64) filter.Value { return filter.Span(n * 60_000 * ticksPerMillisecond) }
	bothTimes := wire.AppendProperties(nil, &wire.Properties{MessageID: "id", CreationTime: ptr(millis(1000)), AbsoluteExpiryTime: ptr(millis(9_000_000))})
	ttl := uint32(5000)
	inHeader := section(wire.AppendHeader(nil, &wire.Header{TTL: &ttl}), wire.SectionData, []byte("x"))
	for name, c := range map[string]struct {
		encoded []byte
		change  fsm.Change
		want    fsm.Millis
		header  uint32 // 0: none
		end     int64  // absolute-expiry-time; 0: none
	}{
		"both times":          {bothTimes, setSystem(filter.TimeToLive, minutes(10)), 600_000, 600_000, 601_000},
		"in the header":       {inHeader, setSystem(filter.TimeToLive, minutes(10)), 600_000, 600_000, 0},
		"above 49 days":       {inHeader, setSystem(filter.TimeToLive, minutes(100_000)), 6_000_000_000, 0, 0},
		"rounded up":          {inHeader, setSystem(filter.TimeToLive, filter.Span(1)), 1, 1, 0},
		"removed":             {bothTimes, removed(filter.System, filter.TimeToLive), 0, 0, 0},
		"NULL":                {inHeader, setSystem(filter.TimeToLive, filter.Value{}), 0, 0, 0},
		"longest":             {bothTimes, setSystem(filter.TimeToLive, filter.Span(math.MaxInt64)), fsm.Forever, 0, 0},
		"another change only": {bothTimes, setSystem(filter.Label, filter.Text("x")), 8_999_000, 0, 9_000_000},
	} {
		m := kit.Must(Parse(c.encoded))(t)
		patches := fsm.AppendPatches(nil, []fsm.Patch{{Changes: []fsm.Change{c.change}}})
		again, err := Reread(m.Payload, patches)
		if err != nil || again.TimeToLive != c.want {
			t.Errorf("%s: forwarded with a time to live of %d ms, want %d; %v", name, again.TimeToLive, c.want, err)
		}
		got := patched(t, c.encoded, fsm.Patch{Changes: []fsm.Change{c.change}})
		header, end := uint32(0), int64(0)
		if got.header.TTL != nil {
			header = *got.header.TTL
		}
		if at := got.properties.AbsoluteExpiryTime; at != nil {
			end = at.UnixMilli()
		}
		if header != c.header || end != c.end {
			t.Errorf("%s: delivered with ttl %d and end %d, want %d and %d", name, header, end, c.header, c.end)
		}
	}
}
