package filter

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
)

// examples is a value of every kind, and those at the ends of them.
func examples() []Value {
	return []Value{
		{},
		Bool(true), Bool(false), Int(0), Int(-1), Int(math.MaxInt64), Int(math.MinInt64),
		Double(0.5), Double(math.Inf(1)), Double(math.Inf(-1)), Double(math.NaN()), Double(math.Copysign(0, -1)), Double(math.MaxFloat64),
		Text(""), Text("a:b ü"), Text("\xff"), Time(-5), Time(1_700_000_000_000), ID(GUID{1, 2, 255}), Binary(nil), Binary([]byte{0, 255}),
	}
}

// TestValuesHaveOneEncoding: a value comes back from bytes, strings and JSON, and no byte
// may be missing.
func TestValuesHaveOneEncoding(t *testing.T) {
	t.Parallel()
	for _, v := range examples() {
		b := AppendValue(nil, v)
		got, rest, err := DecodeValue(append(bytes.Clone(b), 7))
		if err != nil || got != v || len(rest) != 1 {
			t.Errorf("%v comes back as %v, %d bytes left, %v", v, got, len(rest), err)
		}
		if cut, rest, err := CutValue(string(b)); err != nil || cut != v || rest != "" {
			t.Errorf("%v is cut as %v, %v", v, cut, err)
		}
		for n := range b {
			if _, _, err := DecodeValue(b[:n]); err == nil {
				t.Errorf("%v decodes from %d of %d bytes", v, n, len(b))
			}
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var again Value
		if err := json.Unmarshal(text, &again); err != nil || again != v {
			t.Errorf("%v travels as %s and comes back as %v, %v", v, text, again, err)
		}
	}
	for _, bad := range []string{"", "\x01\x02", "\x08", "\x02\x80\x00", "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if _, _, err := CutValue(bad); err == nil {
			t.Errorf("%x decodes", bad)
		}
	}
	for _, bad := range []string{"", "null:", "null:x", "bool:", "int:1.5", "time:x", "double:x", "guid:1", "binary:0", "word:x"} {
		var v Value
		if err := v.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q reads as %v", bad, v)
		}
	}
}

// FuzzDecodeValue: no panic, one encoding.
func FuzzDecodeValue(f *testing.F) {
	for _, v := range examples() {
		f.Add(AppendValue(nil, v))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := DecodeValue(b)
		if err == nil && !bytes.Equal(append(AppendValue(nil, v), rest...), b) {
			t.Errorf("%x is a second encoding of %v", b, v)
		}
	})
}
