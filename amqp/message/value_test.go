package message

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/kit"
)

// sameValue compares values of rules; a NaN equals itself.
func sameValue(a, b filter.Value) bool { return a == b }

// typedValue is a value on the wire, the value that rules see, and the value that a client gets after an
// action has copied it.
type typedValue struct {
	wire any
	rule filter.Value
	back any
}

func typedValues() map[string]typedValue {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	id := wire.UUID{0xc0, 0xff, 0xee, 15: 1}
	ticks := int64(ticksOf1970 + 1_700_000_000_123*ticksPerMillisecond + 7)
	raw := func(text string) wire.Raw {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			panic(err)
		}
		return b
	}
	return map[string]typedValue{
		"null":            {nil, filter.Value{}, nil},
		"true":            {true, filter.Bool(true), true},
		"false":           {raw("56 00"), filter.Bool(false), false},
		"ubyte":           {uint8(200), filter.Int(200), int64(200)},
		"ushort":          {uint16(60000), filter.Int(60000), int64(60000)},
		"uint0":           {uint32(0), filter.Int(0), int64(0)},
		"smalluint":       {uint32(255), filter.Int(255), int64(255)},
		"uint":            {uint32(1 << 31), filter.Int(1 << 31), int64(1 << 31)},
		"ulong0":          {uint64(0), filter.Int(0), int64(0)},
		"ulong":           {uint64(math.MaxInt64), filter.Int(math.MaxInt64), int64(math.MaxInt64)},
		"ulong over long": {uint64(1) << 63, filter.Double(1 << 63), float64(1 << 63)},
		"byte":            {int8(-5), filter.Int(-5), int64(-5)},
		"short":           {int16(-500), filter.Int(-500), int64(-500)},
		"smallint":        {int32(-5), filter.Int(-5), int64(-5)},
		"int":             {int32(math.MinInt32), filter.Int(math.MinInt32), int64(math.MinInt32)},
		"smalllong":       {int64(-128), filter.Int(-128), int64(-128)},
		"long":            {int64(math.MinInt64), filter.Int(math.MinInt64), int64(math.MinInt64)},
		"float":           {float32(1.5), filter.Double(1.5), 1.5},
		"double":          {-0.1, filter.Double(-0.1), -0.1},
		"infinity":        {math.Inf(-1), filter.Double(math.Inf(-1)), math.Inf(-1)},
		"char":            {wire.Char('ß'), filter.Text("ß"), "ß"},
		"string":          {"größer", filter.Text("größer"), "größer"},
		"empty string":    {"", filter.Text(""), ""},
		"long string":     {strings.Repeat("x", 300), filter.Text(strings.Repeat("x", 300)), strings.Repeat("x", 300)},
		"symbol":          {wire.Symbol("sym"), filter.Text("sym"), "sym"},
		"timestamp":       {at, filter.Time(at.UnixMilli()), at},
		"uuid":            {id, filter.ID(filter.GUID(id)), id},
		"binary":          {[]byte{0, 255}, filter.Binary([]byte{0, 255}), []byte{0, 255}},
		"uri":             {wire.Described{Descriptor: wire.Symbol(uriDescriptor), Value: "http://x/"}, filter.Text("http://x/"), "http://x/"},
		"timespan":        {wire.Described{Descriptor: wire.Symbol(timespanDescriptor), Value: int64(-36_000_000_000)}, filter.Span(-36_000_000_000), wire.Described{Descriptor: wire.Symbol(timespanDescriptor), Value: int64(-36_000_000_000)}},
		"datetime-offset": {wire.Described{Descriptor: wire.Symbol(dateTimeOffsetDescriptor), Value: ticks}, filter.Time(at.UnixMilli()), at},
		// Decimals in the binary encoding of IEEE 754-2008.
		"decimal32 1":                 {raw("74 32800001"), filter.Double(1), 1.0},
		"decimal32 9999999":           {raw("74 6cb8967f"), filter.Double(9999999), 9999999.0},
		"decimal64 -0.5":              {raw("84 b1a0000000000005"), filter.Double(-0.5), -0.5},
		"decimal64 long":              {raw("84 6c7386f26fc0ffff"), filter.Double(9999999999999999), 9999999999999999.0},
		"decimal128 12.34":            {raw("94 303c00000000000000000000000004d2"), filter.Double(12.34), 12.34},
		"decimal128 below any double": {raw("94 0c3e000100000000000000000000000f"), filter.Double(0), 0.0},
		// Decimals as .NET clients encode them, up to Microsoft.Azure.Amqp 2.7.3.
		".NET decimal 1.5":     {raw("94 0c3e000000000000000000000000000f"), filter.Double(1.5), 1.5},
		".NET decimal -1.5":    {raw("94 8c3e000000000000000000000000000f"), filter.Double(-1.5), -1.5},
		".NET decimal 250.75":  {raw("94 0c3c00000000000000000000000061f3"), filter.Double(250.75), 250.75},
		".NET decimal 0":       {raw("94 0c400000000000000000000000000000"), filter.Double(0), 0.0},
		".NET decimal 1e-28":   {raw("94 0c080000000000000000000000000001"), filter.Double(1e-28), 1e-28},
		".NET decimal maximum": {raw("94 0c400000ffffffffffffffffffffffff"), filter.Double(79228162514264337593543950335), 79228162514264337593543950335.0},
		"decimal128 infinite":  {raw("94 f8000000000000000000000000000000"), filter.Double(math.Inf(-1)), math.Inf(-1)},
		"decimal128 too big":   {raw("94 5ffe0000000000000000000000000001"), filter.Double(math.Inf(1)), math.Inf(1)},
	}
}

func TestRuleValuesAreReadAndWrittenAsAMQP(t *testing.T) {
	t.Parallel()
	for name, c := range typedValues() {
		encoded := wire.AppendValue(nil, c.wire)
		got, ok := FilterValue(encoded, string(encoded))
		if !ok || got != c.rule {
			t.Errorf("%s: %v %v, want %v", name, got, ok, c.rule)
		}
		back, rest, err := wire.DecodeValue(EncodeFilterValue(got))
		if err != nil || len(rest) > 0 || !cmp.Equal(back, c.back) {
			t.Errorf("%s: back %v, want %v; %v", name, back, c.back, err)
		}
	}
	nan := []byte{0x94, 0x7c, 15: 0, 16: 0}
	if v, ok := FilterValue(nan, string(nan)); !ok || !math.IsNaN(v.AsDouble()) {
		t.Errorf("decimal NaN is %v", v)
	}
	for name, v := range map[string]any{
		"list": []any{int64(1)}, "map": wire.Map{{Key: "a", Value: "b"}}, "array": wire.Array{Values: []int64{1}},
		"described":     wire.Described{Descriptor: wire.Symbol("com.example:x"), Value: int64(1)},
		"by number":     wire.Described{Descriptor: uint64(77), Value: int64(1)},
		"uri of a long": wire.Described{Descriptor: wire.Symbol(uriDescriptor), Value: int64(1)},
		"span of text":  wire.Described{Descriptor: wire.Symbol(timespanDescriptor), Value: "1"},
	} {
		encoded := wire.AppendValue(nil, v)
		if got, ok := FilterValue(encoded, string(encoded)); ok {
			t.Errorf("%s is %v to rules", name, got)
		}
	}
}

// Text that no client can decode is never sent, whatever its origin.
func TestRuleValuesAreUTF8(t *testing.T) {
	t.Parallel()
	encoded := wire.AppendSymbol(nil, "a\xffb")
	v, ok := FilterValue(encoded, string(encoded))
	if !ok || v != filter.Text("a\xffb") {
		t.Fatalf("%v %v", v, ok)
	}
	if back, _, err := wire.DecodeValue(EncodeFilterValue(v)); err != nil || back != "a\ufffdb" {
		t.Errorf("%q, %v", back, err)
	}
}

// An action that copies a property to one that had no value, SET b = a, copies its type, too, also by way
// of another one.
func TestActionsKeepTheTypesOfWhatTheyCopy(t *testing.T) {
	t.Parallel()
	action := kit.Must(filter.ParseAction("SET x = a; SET b = x; SET sys.Label = 'done'", nil))(t)
	for name, c := range typedValues() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := afterAction(t, action, wire.Map{{Key: "a", Value: c.wire}})
			want, _, err := wire.DecodeValue(wire.AppendValue(nil, c.wire))
			if err != nil {
				t.Fatal(err)
			}
			if a, b := got.application.Get("a"), got.application.Get("b"); !cmp.Equal(a, want) || !cmp.Equal(b, want) {
				t.Errorf("a is %T %v, b is %T %v, want %T %v for both", a, a, b, b, want, want)
			}
			if got.properties.Subject == nil || *got.properties.Subject != "done" {
				t.Errorf("subject %v", got.properties.Subject)
			}
		})
	}
}

// Values that are computed, or set where a value was, have the one AMQP type of their kind.
func TestActionsGiveOtherValuesTheTypeOfTheirKind(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"SET b = a + 0":           int64(5),
		"SET old = a":             int64(5),
		"SET old = 0; SET b = a;": int32(5),
		"SET old = f":             1.5,
		"SET b = 7":               int64(7),
	} {
		action := kit.Must(filter.ParseAction(text, nil))(t)
		got := afterAction(t, action, wire.Map{{Key: "a", Value: int32(5)}, {Key: "f", Value: float32(1.5)}, {Key: "Old", Value: int16(7)}})
		name := "b"
		if got.application.Get(name) == nil {
			name = "Old"
		}
		if v := got.application.Get(name); !cmp.Equal(v, want) {
			t.Errorf("%s: %s is %T %v, want %T %v", text, name, v, v, want, want)
		}
	}
}

// afterAction returns a delivery of a message with these properties that an action has changed.
func afterAction(t *testing.T, action *filter.Action, properties wire.Map) sections {
	t.Helper()
	m, err := Parse(section(nil, wire.SectionApplicationProperties, properties))
	if err != nil {
		t.Fatal(err)
	}
	encoded := kit.Must(new(RuleReader).read(m.Payload))(t)
	copied := &ruleCopy{}
	if copied.properties, err = fsm.DecodeProperties(encoded); err != nil {
		t.Fatal(err)
	}
	kit.OK(t, action.Apply(copied, copied))
	return sectionsOf(t, fsm.Delivery{Payload: m.Payload, Patches: fsm.AppendPatches(nil, []fsm.Patch{{Changes: copied.changes}})})
}

// ruleCopy is a message that rules see, with the changes of an action in the form that the state machine
// stores.
type ruleCopy struct {
	properties []fsm.Property
	changes    []fsm.Change
}

func (c *ruleCopy) find(scope filter.Scope, folded string) int {
	for i, p := range c.properties {
		if p.Name.Scope == scope && filter.Fold(p.Name.Name) == folded {
			return i
		}
	}
	return -1
}

func (c *ruleCopy) System(name string) filter.Value {
	if i := c.find(filter.System, filter.Fold(name)); i >= 0 {
		return c.properties[i].Value
	}
	return filter.Value{}
}

func (c *ruleCopy) User(folded string) (filter.Value, bool) {
	if i := c.find(filter.User, folded); i >= 0 {
		return c.properties[i].Value, true
	}
	return filter.Value{}, false
}

func (c *ruleCopy) NewID(int) filter.GUID { return filter.GUID{1} }

func (c *ruleCopy) Set(p filter.Property, v filter.Value, from string) error {
	if i := c.find(p.Scope, filter.Fold(p.Name)); i >= 0 {
		c.properties[i].Value = v
	} else {
		c.properties = append(c.properties, fsm.Property{Name: p, Value: v})
	}
	c.changes = append(c.changes, fsm.Change{Property: p, Value: v, From: from})
	return nil
}

func (c *ruleCopy) Remove(p filter.Property) error {
	if i := c.find(p.Scope, filter.Fold(p.Name)); i >= 0 {
		c.properties = append(c.properties[:i], c.properties[i+1:]...)
	}
	c.changes = append(c.changes, fsm.Change{Property: p, Remove: true})
	return nil
}

// sections holds the sections of a delivery, decoded by the decoder of values.
type sections struct {
	annotations, application wire.Map
	properties               wire.Properties
	header                   wire.Header
}

// sectionsOf delivers a message and decodes it.
func sectionsOf(t testing.TB, d fsm.Delivery, change ...func(*fsm.EntityRef)) (s sections) {
	t.Helper()
	place := testPlace()
	for _, c := range change {
		c(&place)
	}
	out := kit.Must(AppendDelivery(nil, place, d, DeliveryOptions{}))(t)
	for rest := out; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.CheckValue(value); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		rest = behind
		switch kind { //nolint:exhaustive // the others are not looked at
		case wire.SectionHeader:
			s.header, err = wire.DecodeHeader(value)
		case wire.SectionMessageAnnotations:
			s.annotations, err = wire.DecodeMap(value)
		case wire.SectionProperties:
			s.properties, err = wire.DecodeProperties(value)
		case wire.SectionApplicationProperties:
			s.application, err = wire.DecodeMap(value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestInstantsAreReadInAllForms checks that moments are read as a timestamp, as milliseconds, and as ticks of .NET, which are
// rounded up.
func TestInstantsAreReadInAllForms(t *testing.T) {
	t.Parallel()
	offset := func(ticks any) wire.Described {
		return wire.Described{Descriptor: wire.Symbol(dateTimeOffsetDescriptor), Value: ticks}
	}
	for name, c := range map[string]struct {
		v    any
		want fsm.Instant
		ok   bool
	}{
		"timestamp":        {time.UnixMilli(7), 7, true},
		"long":             {int64(7), 7, true},
		"before 1970":      {time.UnixMilli(-7), 0, true},
		"ticks":            {offset(Ticks(7)), 7, true},
		"ticks rounded up": {offset(Ticks(7) + 1), 8, true},
		"ticks below":      {offset(Ticks(7) - 1), 7, true},
		"ticks of year 1":  {offset(int64(0)), 0, true},
		"last tick":        {offset(int64(ticksMax)), 253_402_300_800_000, true},
		"after the last":   {offset(int64(ticksMax + 1)), 0, false},
		"negative ticks":   {offset(int64(math.MinInt64)), 0, false},
		"ticks of text":    {offset("7"), 0, false},
		"timespan":         {wire.Described{Descriptor: wire.Symbol(timespanDescriptor), Value: int64(7)}, 0, false},
		"text":             {"7", 0, false},
		"nothing":          {nil, 0, false},
	} {
		if got, ok := InstantOf(c.v); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v, want %d, %v", name, got, ok, c.want, c.ok)
		}
	}
}
