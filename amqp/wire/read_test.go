package wire

import (
	"bytes"
	"math"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// Signed numbers, floats and chars are read in every encoding, and no other value is accepted as one of them.
func TestNumbersAreReadInEveryEncoding(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"51 80": -128, "54 ff": -1, "55 05": 5, "61 8000": math.MinInt16, "71 80000000": math.MinInt32, "81 7fffffffffffffff": math.MaxInt64,
	} {
		if n, ok := IntOf(unhex(t, text)); !ok || n != want {
			t.Errorf("%s: %d %v", text, n, ok)
		}
	}
	for text, want := range map[string]float64{"72 3fc00000": 1.5, "82 3ff8000000000000": 1.5, "72 ff800000": math.Inf(-1)} {
		if f, ok := FloatOf(unhex(t, text)); !ok || f != want {
			t.Errorf("%s: %v %v", text, f, ok)
		}
	}
	if c, ok := CharOf(unhex(t, "73 000000df")); !ok || c != 'ß' {
		t.Errorf("char %v %v", c, ok)
	}
	for _, text := range []string{"", "40", "41", "43", "50 01", "81 00", "a1 01 31", "55 05 05", "00 a3 01 61 55 05"} {
		b := unhex(t, text)
		_, isInt := IntOf(b)
		_, isFloat := FloatOf(b)
		_, isChar := CharOf(b)
		_, isDecimal := DecimalOf(b)
		if isInt || isFloat || isChar || isDecimal {
			t.Errorf("%q: %v %v %v %v", text, isInt, isFloat, isChar, isDecimal)
		}
	}
	for _, text := range []string{"74 01020304", "84 0102030405060708", "94 0102030405060708090a0b0c0d0e0f10"} {
		b := unhex(t, text)
		if data, ok := DecimalOf(b); !ok || !bytes.Equal(data, b[1:]) {
			t.Errorf("%s: %x %v", text, data, ok)
		}
	}
}

func TestDescribedValueIsSplit(t *testing.T) {
	t.Parallel()
	descriptor, inner, ok := DescribedOf(unhex(t, "00 a3 03 61 3a 62 81 0000000000000007"))
	if name, isSymbol := SymbolOf(descriptor); !ok || !isSymbol || string(name) != "a:b" {
		t.Errorf("descriptor %x %v", descriptor, ok)
	}
	if n, isInt := IntOf(inner); !isInt || n != 7 {
		t.Errorf("inner %x", inner)
	}
	for _, text := range []string{"", "00", "00 a3 03 61", "00 a3 01 61", "00 a3 01 61 81 00", "00 a3 01 61 41 41", "41"} {
		if _, _, ok := DescribedOf(unhex(t, text)); ok {
			t.Errorf("%q is described", text)
		}
	}
}

// Rest determines the position of an item.
func TestRestIsTheDistanceToTheEnd(t *testing.T) {
	t.Parallel()
	value := AppendListOf(nil, func(dst []byte) ([]byte, int) {
		return AppendString(AppendLong(dst, 5), "x"), 2
	})
	list := kit.Must(IterList(value))(t)
	for item, ok := list.Next(); ok; item, ok = list.Next() {
		if end := len(value) - list.Rest(); !bytes.Equal(value[end-len(item):end], item) {
			t.Errorf("item %x does not end at %d", item, end)
		}
	}
	pairs := IterPairs(unhex(t, "a1 01 61 41 a1 01 62 42"))
	if _, _, ok := pairs.Next(); !ok || pairs.Rest() != 4 {
		t.Errorf("%v, rest %d", ok, pairs.Rest())
	}
	if empty := AppendListOf(nil, func(dst []byte) ([]byte, int) { return dst, 0 }); !bytes.Equal(empty, []byte{codeList8, 1, 0}) {
		t.Errorf("empty list %x", empty)
	}
}
