package jsonmessage_test

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/wire"
)

// everyValue has a value of each AMQP type, and values that JSON numbers do not hold.
func everyValue() wire.Map {
	at := time.UnixMilli(1795176000123).UTC()
	var m wire.Map
	for i, v := range []any{
		nil, true, false, "text ü", wire.Symbol("symbol"),
		[]byte{0, 255},
		int8(-8), int16(-16), int32(-32), int64(-64), int64(math.MaxInt64), int64(math.MinInt64),
		uint8(8), uint16(16), uint32(32), uint64(64), uint64(math.MaxUint64), float32(1.1), 1.1, math.Inf(1), math.NaN(), math.Copysign(0, -1), wire.Char('ü'),
		at, time.UnixMilli(-62_135_596_800_000).UTC(), time.UnixMilli(math.MaxInt64 / 4).UTC(),
		wire.UUID{1, 2, 255},
		[]any{int32(1), "two", []any{}},
		wire.Map{{Key: int32(7), Value: wire.Symbol("x")}},
		wire.Array{Values: []int64{1, 2}},
		wire.Described{Descriptor: wire.Symbol("d"), Value: uint64(1)},
	} {
		m = append(m, wire.Pair{Key: string(rune('A' + i)), Value: v})
	}
	return m
}

// TestMessagesAreExactBothWays writes messages as JSON, reads them, and compares the bytes.
func TestMessagesAreExactBothWays(t *testing.T) {
	t.Parallel()
	yes, priority, ttl, subject, kind, session, group := true, uint8(7), uint32(60_000), "s", wire.Symbol("application/json"), "", uint32(3)
	at := time.UnixMilli(1795176000123).UTC()
	sections := wire.AppendHeader(nil, &wire.Header{Durable: &yes, Priority: &priority, TTL: &ttl, FirstAcquirer: &yes})
	pairs := wire.Map{{Key: wire.Symbol("x-a"), Value: "v"}, {Key: wire.Symbol("x-b"), Value: uint64(math.MaxUint64)}}
	sections = wire.AppendMap(wire.AppendSectionDescriptor(sections, wire.SectionDeliveryAnnotations), pairs)
	sections = wire.AppendMap(wire.AppendSectionDescriptor(sections, wire.SectionMessageAnnotations), pairs)
	sections = wire.AppendProperties(sections, &wire.Properties{
		MessageID: wire.UUID{9}, UserID: []byte{0}, To: "to", Subject: &subject, ReplyTo: "r", CorrelationID: uint64(1 << 60), ContentType: &kind,
		ContentEncoding: &kind, AbsoluteExpiryTime: &at, CreationTime: &at, GroupID: &session, GroupSequence: &group, ReplyToGroupID: &subject,
	})
	sections = wire.AppendMap(wire.AppendSectionDescriptor(sections, wire.SectionApplicationProperties), everyValue())
	data := func(b []byte, parts ...string) []byte {
		for _, part := range parts {
			b = wire.AppendBinary(wire.AppendSectionDescriptor(b, wire.SectionData), []byte(part))
		}
		return b
	}
	sections = slices.Clip(sections)
	for name, encoded := range map[string][]byte{
		"text":      data(sections, "hällo"),
		"empty":     data(sections, ""),
		"binary":    data(sections, "\xff\x00"),
		"two parts": data(sections, "a", "\xff"),
		"no body":   sections,
		"value":     wire.AppendValue(wire.AppendSectionDescriptor(sections, wire.SectionValue), everyValue()),
		"null":      wire.AppendValue(wire.AppendSectionDescriptor(sections, wire.SectionValue), nil),
		"sequences": wire.AppendValue(wire.AppendSectionDescriptor(
			wire.AppendValue(wire.AppendSectionDescriptor(sections, wire.SectionSequence), []any{int32(1)}), wire.SectionSequence), []any{"x"}),
		"footer": wire.AppendMap(wire.AppendSectionDescriptor(data(sections, "f"), wire.SectionFooter), pairs),
		"bare":   data(nil, "only a body"),
	} {
		m, _, err := jsonmessage.Parse(encoded, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		line, err := json.Marshal(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var read jsonmessage.Message
		if err := json.Unmarshal(line, &read); err != nil {
			t.Errorf("%s: read %s: %v", name, line, err)
			continue
		}
		if got, err := read.Encode(); err != nil || !bytes.Equal(got, encoded) {
			t.Errorf("%s: got %x (%v), want %x, by way of %s", name, got, err, encoded, line)
		}
	}
}

// TestLongBodiesAreCut: between two characters, and a message that was cut is not written again.
func TestLongBodiesAreCut(t *testing.T) {
	t.Parallel()
	long := wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), []byte("abü"+strings.Repeat("x", 50)))
	for limit, want := range map[int]string{1: "a", 3: "ab", 4: "abü"} {
		m, size, err := jsonmessage.Parse(long, limit)
		if err != nil || !m.BodyCut || m.Body == nil || *m.Body != want || size != 54 {
			t.Errorf("limit %d: got %v %d %v, want %q of 54 bytes", limit, m.Body, size, err, want)
		}
		if _, err := m.Encode(); err == nil {
			t.Errorf("limit %d: a message that was cut was written", limit)
		}
	}
	value := wire.AppendValue(wire.AppendSectionDescriptor(nil, wire.SectionValue), strings.Repeat("x", 50))
	if m, _, err := jsonmessage.Parse(value, 10); err != nil || !m.BodyCut || m.Value != nil {
		t.Errorf("a value over the limit: got %+v %v, want none", m, err)
	}
}

// TestInvalidValues are refused.
func TestInvalidValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`7`, `[]`, `{}`, `{"int":1,"long":2}`, `{"int":2147483648}`, `{"ubyte":-1}`, `{"uuid":"00"}`, `{"symbol":"ü"}`, `{"amqp":"QA=="} x`, `{"amqp":"QEA="}`,
		`{"binary":"?"}`, `{"map":[["a"]]}`, `{"decimal":"1"}`, `{"timestamp":"yesterday"}`,
	} {
		var v jsonmessage.Value
		if err := json.Unmarshal([]byte(text), &v); err == nil {
			t.Errorf("%s was read as %v", text, v.Go)
		}
	}
	deep := strings.Repeat(`{"list":[`, 65) + strings.Repeat(`]}`, 65)
	var v jsonmessage.Value
	if err := json.Unmarshal([]byte(deep), &v); err == nil {
		t.Error("65 lists in each other were read")
	}
	if err := json.Unmarshal([]byte(`{"list":["`+strings.Repeat(`[{\"`, 200)+`"]}`), &v); err != nil {
		t.Error("brackets in a text:", err)
	}
	two := `{"body":"a","bodyBase64":"AA=="}`
	var m jsonmessage.Message
	if err := json.Unmarshal([]byte(two), &m); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Encode(); err == nil {
		t.Error("a message with two bodies was written")
	}
}

// FuzzValue checks that no JSON makes a value that cannot be written and read again.
func FuzzValue(f *testing.F) {
	for _, p := range everyValue() {
		text, _ := json.Marshal(jsonmessage.Value{Go: p.Value})
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v, again jsonmessage.Value
		if json.Unmarshal(text, &v) != nil {
			return
		}
		written, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if want, got := wire.AppendValue(nil, v.Go), wire.AppendValue(nil, again.Go); !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", written, got, want)
		}
	})
}
