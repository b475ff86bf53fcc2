package filter

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever the text: no panic, and what parses prints as something that parses to the
// same, and gives the same answer.
func FuzzFilter(f *testing.F) {
	for _, r := range rows(f) {
		f.Add(r.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text, parameters())
		if err != nil {
			return
		}
		if utf8.RuneCountInString(text) > TextCharactersMax {
			t.Fatal("too long, and parsed")
		}
		printed := e.String()
		again, err := parse(printed, parameters())
		if err != nil {
			t.Fatalf("%q printed as %q: %v", text, printed, err)
		}
		if twice := again.String(); twice != printed {
			t.Fatalf("%q printed as %q, then as %q", text, printed, twice)
		}
		if a, b := answer(e, nil, sample()), answer(again, nil, sample()); a != b && !strings.Contains(a, "character") {
			t.Fatalf("%q: %s, printed as %q: %s", text, a, printed, b)
		}
	})
}

func FuzzAction(f *testing.F) {
	for _, text := range []string{
		"SET x = 1; REMOVE y", "set [a b] = sys.Label + @s remove sys.To", "SET x = (1 + 2) * -3 % p('x') SET y = newid();",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAction(text, parameters())
		if err != nil {
			return
		}
		again, err := parseAction(a.String(), parameters())
		if err != nil || again.String() != a.String() {
			t.Fatalf("%q printed as %q: %v", text, a, err)
		}
		m, n := sample(), sample()
		errA, errB := a.Apply(m, m), again.Apply(n, n)
		if (errA == nil) != (errB == nil) || changes(m) != changes(n) {
			t.Fatalf("%q: %v %s, printed as %q: %v %s", text, errA, changes(m), a, errB, changes(n))
		}
	})
}

// LIKE agrees with a regular expression.
func FuzzLike(f *testing.F) {
	f.Add("aXbXc", "%X_", "")
	f.Add("a%b", "a!%b", "!")
	f.Add("größe", "gr_%e", "%")
	f.Fuzz(func(t *testing.T, s, text, escape string) {
		if !utf8.ValidString(s) || !utf8.ValidString(text) || !utf8.ValidString(escape) || len(s)+len(text) > 1000 {
			return
		}
		p, ok := compilePattern(text, escape, nil)
		if utf8.RuneCountInString(escape) > 1 {
			if ok {
				t.Fatalf("an escape of %q", escape)
			}
			return
		}
		want, valid := likeExpression(text, escape)
		if ok != valid {
			t.Fatalf("%q ESCAPE %q: %v, want %v", text, escape, ok, valid)
		}
		if !ok {
			return
		}
		var m matcher
		if got := m.match(&p, s, nil); got != want.MatchString(s) {
			t.Fatalf("%q LIKE %q ESCAPE %q: %v", s, text, escape, got)
		}
	})
}

// A pattern made of many % against a text that nearly fits: time grows with the product
// of the lengths divided by 64, so this returns at once. Doing it by trying all splits would not end.
func TestLikeIsNotExponential(t *testing.T) {
	t.Parallel()
	p, ok := compilePattern(strings.Repeat("%a", 400)+"b", "", nil)
	var m matcher
	if !ok || m.match(&p, strings.Repeat("a", 30_000), nil) {
		t.Error("matched")
	}
}
