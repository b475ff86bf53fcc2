package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/kit"
)

func fullProperties() Properties {
	return Properties{
		MessageID: "id", UserID: []byte{1}, To: "to", Subject: ptr("subject"), ReplyTo: "reply", CorrelationID: uint64(5),
		ContentType: ptr(Symbol("ct")), ContentEncoding: ptr(Symbol("ce")),
		AbsoluteExpiryTime: ptr(time.UnixMilli(1).UTC()), CreationTime: ptr(time.UnixMilli(2).UTC()),
		GroupID: ptr(""), GroupSequence: ptr(uint32(3)), ReplyToGroupID: ptr("g"),
	}
}

func TestHeaderAndPropertiesAreReadBack(t *testing.T) {
	t.Parallel()
	for _, h := range []Header{{}, {Durable: ptr(true), Priority: ptr(uint8(0)), TTL: ptr(uint32(1000)), FirstAcquirer: ptr(false), DeliveryCount: 3}} {
		kind, value, _, rest, err := NextSection(AppendHeader(nil, &h))
		if err != nil || kind != SectionHeader || len(rest) != 0 {
			t.Fatal(kind, rest, err)
		}
		got := kit.Must(DecodeHeader(value))(t)
		if diff := cmp.Diff(h, got); diff != "" {
			t.Error(diff)
		}
	}
	for _, p := range []Properties{{}, fullProperties()} {
		kind, value, _, rest, err := NextSection(AppendProperties(nil, &p))
		if err != nil || kind != SectionProperties || len(rest) != 0 {
			t.Fatal(kind, rest, err)
		}
		got := kit.Must(DecodeProperties(value))(t)
		if diff := cmp.Diff(p, got); diff != "" {
			t.Error(diff)
		}
	}
	empty := unhex(t, `00 53 73 c0 0e 0d 40404040404040404040404040`)
	if got := AppendProperties(nil, &Properties{}); !bytes.Equal(got, empty) {
		t.Errorf("%x", got)
	}
	header := unhex(t, `00 53 70 c0 06 05 40 40 40 40 43`) // absent fields are null
	if got := AppendHeader(nil, &Header{}); !bytes.Equal(got, header) {
		t.Errorf("%x", got)
	}
}

func TestSectionsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, hex string
		kind      SectionKind
		value     string
	}{
		{"small ulong", `00 53 75 a0 01 61`, SectionData, `a0 01 61`},
		{"ulong", `00 80 0000000000000077 41`, SectionValue, `41`},
		{"symbol", `00 a3 10 616d71703a646174613a62696e617279 a0 00`, SectionData, `a0 00`},
		{"symbol32", `00 b3 00000010 616d71703a646174613a62696e617279 a0 00`, SectionData, `a0 00`},
		{"described value", `00 53 77 00 44 41`, SectionValue, `00 44 41`},
		{"header list0", `00 53 70 45`, SectionHeader, `45`},
		{"footer", `00 53 78 c1 01 00`, SectionFooter, `c1 01 00`},
		{"sequence", `00 53 76 c0 01 00`, SectionSequence, `c0 01 00`},
	} {
		b := unhex(t, c.hex)
		kind, value, whole, rest, err := NextSection(append(bytes.Clone(b), 0x53))
		if err != nil || kind != c.kind || !bytes.Equal(whole, b) || !bytes.Equal(value, unhex(t, c.value)) || !bytes.Equal(rest, []byte{0x53}) {
			t.Errorf("%s: %v %x %x %x %v", c.name, kind, value, whole, rest, err)
		}
	}
	for name, s := range map[string]string{
		"nothing": ``, "not described": `53 75 a0 00`, "unknown": `00 53 79 40`, "below": `00 53 6f 40`, "no value": `00 53 75`,
		"unknown name": `00 a3 01 61 40`, "data of string": `00 53 75 a1 00`, "map of list": `00 53 74 45`, "header of null": `00 53 70 40`,
		"descriptor of string": `00 a1 01 75 40`, "cut": `00 53 75 a0 05 61`,
	} {
		if _, _, _, _, err := NextSection(unhex(t, s)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSectionsHaveTheNamesOfTheSpecification(t *testing.T) {
	t.Parallel()
	for kind := SectionHeader; kind <= SectionFooter; kind++ {
		name := "amqp:" + kind.String()
		switch kind {
		case SectionHeader, SectionProperties, SectionSequence:
			name += ":list"
		case SectionData:
			name += ":binary"
		case SectionValue:
			name = "amqp:amqp-value:*"
		case SectionDeliveryAnnotations, SectionMessageAnnotations, SectionApplicationProperties, SectionFooter:
			name += ":map"
		}
		if kind == SectionSequence {
			name = "amqp:amqp-sequence:list"
		}
		if got := sectionOfName([]byte(name)); got != kind {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestIteratorsReadMapsAndPairs(t *testing.T) {
	t.Parallel()
	m := Map{{Symbol("a"), int64(1)}, {"b", []any{true}}}
	it, err := IterMap(AppendMap(nil, m))
	if err != nil || it.Len() != 2 {
		t.Fatal(err)
	}
	pairs := walk(t, &it)
	headless := IterPairs(pairs)
	if again := walk(t, &headless); !bytes.Equal(pairs, again) {
		t.Fatalf("%x\n%x", pairs, again)
	}
	none := IterPairs(nil)
	if _, _, ok := none.Next(); ok || none.Err() != nil {
		t.Fatal(none.Err())
	}
	for _, bad := range []string{`41`, `a1 05 41`, `41 42 43`} {
		it := IterPairs(unhex(t, bad))
		for {
			if _, _, ok := it.Next(); !ok {
				break
			}
		}
		if it.Err() == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
	for _, bad := range []string{``, `45`, `c1 02 01 40`, `c1 02 02 40`, `c1 01 00 00`, `c1 02 00 40`} {
		if _, err := IterMap(unhex(t, bad)); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
	list := kit.Must(IterList(unhex(t, `c0 03 01 40 41`)))(t)
	if _, ok := list.Next(); !ok || list.Err() == nil {
		t.Error("bytes behind the last item accepted")
	}
}

func walk(t *testing.T, it *MapIter) (pairs []byte) {
	t.Helper()
	for {
		key, value, ok := it.Next()
		if !ok {
			break
		}
		pairs = append(append(pairs, key...), value...)
	}
	kit.OK(t, it.Err())
	return pairs
}

func TestScalarsAreReadByType(t *testing.T) {
	t.Parallel()
	enc := func(v any) []byte { return AppendValue(nil, v) }
	if s, ok := TextOf(enc("a")); !ok || string(s) != "a" {
		t.Error("string")
	}
	if s, ok := TextOf(enc(Symbol("a"))); !ok || string(s) != "a" {
		t.Error("symbol")
	}
	if _, ok := TextOf([]byte{codeString8, 1, 0xff}); ok {
		t.Error("bad UTF-8")
	}
	if ms, ok := MillisOf(enc(time.UnixMilli(5))); !ok || ms != 5 {
		t.Error("timestamp")
	}
	if ms, ok := MillisOf(enc(int64(-5))); !ok || ms != -5 {
		t.Error("small long")
	}
	if ms, ok := MillisOf(enc(int64(500))); !ok || ms != 500 {
		t.Error("long")
	}
	for _, v := range []any{uint8(5), uint16(5), uint32(5), uint64(5)} {
		if n, ok := UintOf(enc(v)); !ok || n != 5 {
			t.Errorf("%T", v)
		}
		if _, ok := UlongOf(enc(v)); ok != (enc(v)[0] == codeSmallUlong) {
			t.Errorf("ulong of %T", v)
		}
	}
	for _, b := range [][]byte{nil, {codeNull}, {codeUint, 0}, {codeUbyte}, {codeUbyte, 1, 1}, {codeInt, 0, 0, 0, 1}} {
		if _, ok := UintOf(b); ok {
			t.Errorf("%x taken", b)
		}
	}
	if v, ok := BoolOf([]byte{codeBool, 1}); !ok || !v {
		t.Error("bool")
	}
	if _, ok := BoolOf([]byte{codeBool, 2}); ok {
		t.Error("bool of 2")
	}
	if id, ok := UUIDOf(enc(UUID{1})); !ok || id != (UUID{1}) {
		t.Error("uuid")
	}
	if _, ok := UUIDOf(enc("")); ok {
		t.Error("uuid of string")
	}
	if !IsNull(enc(nil)) || IsNull(enc(true)) || !IsTimestamp(enc(time.Time{})) || IsTimestamp(enc(int64(1))) {
		t.Error("null or timestamp")
	}
}

func TestMapsAreDecodedStrictly(t *testing.T) {
	t.Parallel()
	if m, err := DecodeMap(unhex(t, `40`)); m != nil || err != nil {
		t.Error(m, err)
	}
	for _, bad := range []string{``, `45`, `c1 01 00 40`, `c1 02 01 40`} {
		if _, err := DecodeMap(unhex(t, bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

// FuzzSections iterates over a message as the gateway does.
func FuzzSections(f *testing.F) {
	p, h := fullProperties(), Header{TTL: ptr(uint32(5))}
	message := AppendProperties(AppendHeader(nil, &h), &p)
	message = AppendMap(AppendSectionDescriptor(message, SectionApplicationProperties), Map{{"k", "v"}})
	f.Add(append(message, 0, 0x53, 0x75, 0xa0, 1, 'x'))
	f.Add(unhex(f, `00 53 72 c1 05 02 a3 01 61 41 00 53 77 40`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			kind, value, whole, rest, err := NextSection(b)
			if err != nil {
				return
			}
			if len(whole)+len(rest) != len(b) || len(value) >= len(whole) {
				t.Fatalf("sections do not add up: %x", b)
			}
			switch kind {
			case SectionHeader:
				_, _ = DecodeHeader(value)
			case SectionProperties:
				_, _ = DecodeProperties(value)
			case SectionDeliveryAnnotations, SectionMessageAnnotations, SectionApplicationProperties, SectionFooter:
				_, mapErr := DecodeMap(value)
				if it, err := IterMap(value); err == nil {
					pairs := 0
					for {
						if _, _, ok := it.Next(); !ok {
							break
						}
						pairs++
					}
					if mapErr == nil && it.Err() != nil {
						t.Fatalf("decoded but not walked: %v", it.Err())
					}
				} else if mapErr == nil {
					t.Fatalf("decoded but not walked: %v", err)
				}
			case SectionData, SectionSequence, SectionValue:
				_, _ = CheckValue(value)
			}
			b = rest
		}
	})
}

func BenchmarkCheckValue(b *testing.B) {
	p := fullProperties()
	_, value, _, _, _ := NextSection(AppendProperties(nil, &p))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CheckValue(value); err != nil {
			b.Fatal(err)
		}
	}
}
