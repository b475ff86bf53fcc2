package filter

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFold(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "abc": "abc", "AbC_9": "abc_9", "ÀÞ×ßÿ": "àþ×ßÿ", "ΑΩαω": "αωαω", "АЯаяЀЏѐџ": "аяаяѐџѐџ",
		"名前": "名前", "ǅ": "ǅ", "İı": "İı", "\u212a": "\u212a", "A\xffB": "a\xffb", "[]@`{}": "[]@`{}",
	} {
		if got := Fold(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	// Folding agrees with Unicode where it folds at all, and folding twice changes nothing.
	for r := range rune(0x3000) {
		s := string(r)
		if folded := Fold(s); folded != s && folded != strings.ToLower(s) || Fold(folded) != folded {
			t.Errorf("%q becomes %q", s, folded)
		}
		if utf8.ValidString(s) && r < 0x250 && isLetter(r) != (strings.ToUpper(s) != strings.ToLower(s)) && r < 0x80 {
			t.Errorf("%q is a letter: %t", s, isLetter(r))
		}
	}
}

func TestLettersOfPlainNames(t *testing.T) {
	t.Parallel()
	for _, r := range "azAZäÄßµªºñλЖאك名あ가" {
		if !isLetter(r) {
			t.Errorf("%q is no letter", r)
		}
	}
	for _, r := range "09_-$@#~.,;:!?'\"[]{}()<>=+*/%&|^\\` \t\n\u00a0\u0085×÷–…“„€→≤■\u3000、\ufeff\uffff\ue000" {
		if isLetter(r) {
			t.Errorf("%q is a letter", r)
		}
	}
}

func TestFormatDouble(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{
		0: "0", math.Copysign(0, -1): "0", 1: "1", -1.5: "-1.5", 1e14: "100000000000000", 1e15: "1E+15", 1.5e15: "1.5E+15",
		0.0001: "0.0001", 0.00012: "0.00012", 0.00001: "1E-05", 1e-300: "1E-300", 0.30000000000000004: "0.30000000000000004",
		math.MaxFloat64: "1.7976931348623157E+308", math.Inf(1): "Infinity", math.Inf(-1): "-Infinity",
	} {
		if got := formatDouble(f); got != want && f != 0 {
			t.Errorf("%g: %q, want %q", f, got, want)
		}
	}
	if got := formatDouble(math.NaN()); got != "NaN" {
		t.Errorf("NaN: %q", got)
	}
	if got := formatDouble(math.Copysign(0, -1)); got != "-0" {
		t.Errorf("-0: %q", got)
	}
}

func TestValuesGiveBackWhatTheyHold(t *testing.T) {
	t.Parallel()
	if v := Uint(1 << 62); v.Kind() != KindInt || v.AsInt() != 1<<62 || v.AsDouble() != 1<<62 {
		t.Error(v)
	}
	if v := Uint(1 << 63); v.Kind() != KindDouble || v.AsDouble() != 1<<63 || v.AsInt() != 0 {
		t.Error(v)
	}
	if v := Time(-5); v.AsInt() != -5 || v.AsDouble() != 0 || v.AsBool() {
		t.Error(v)
	}
	if v := Text("a"); v.AsText() != "a" || v.AsInt() != 0 || v.AsDouble() != 0 || v.AsBool() || v.String() != "a" {
		t.Error(v)
	}
	b := []byte("ab")
	v := Binary(b)
	b[0] = 'x'
	if v.AsText() != "ab" {
		t.Error("a binary changes with the slice it was made of")
	}
	if !Bool(true).AsBool() || Bool(false).AsBool() || (Value{}).Kind() != KindNull || (Value{}).String() != "NULL" {
		t.Error("booleans or NULL")
	}
	for k := KindNull; k <= KindBinary; k++ {
		if strings.HasPrefix(k.String(), "kind") {
			t.Errorf("kind %d has no name", k)
		}
	}
}
