package filter

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// What follows is the matcher of the first releases, which tried one position after the
// other. It says what LIKE means; the automaton must agree with it on any bytes.

// backtracker is a LIKE pattern taken apart: pieces of text, with wildcards between them.
type backtracker struct{ pieces []piece }

// piece is a text that must stand here, or a wildcard.
type piece struct {
	text string // if wild is 0
	wild byte   // '%' any characters, '_' one character
}

// backtracking takes a pattern apart. escape is the empty string for none, else one character:
// what follows it in the pattern stands for itself, whatever it is. ok is false if the
// escape is longer or the pattern ends in it.
func backtracking(text, escape string) (p *backtracker, ok bool) {
	if escape != "" && utf8.RuneCountInString(escape) != 1 {
		return nil, false
	}
	p = &backtracker{}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			p.pieces = append(p.pieces, piece{text: literal.String()})
			literal.Reset()
		}
	}
	for len(text) > 0 {
		_, n := utf8.DecodeRuneInString(text)
		switch c := text[:n]; c {
		case escape:
			text = text[n:]
			if text == "" {
				return nil, false
			}
			_, n = utf8.DecodeRuneInString(text)
			literal.WriteString(text[:n])
		case "%":
			flush()
			if last := len(p.pieces) - 1; last < 0 || p.pieces[last].wild != '%' {
				p.pieces = append(p.pieces, piece{wild: '%'})
			}
		case "_":
			flush()
			p.pieces = append(p.pieces, piece{wild: '_'})
		default:
			literal.WriteString(c)
		}
		text = text[n:]
	}
	flush()
	return p, true
}

// match says whether all of s fits. On a mismatch it goes back to the last % only, which
// is enough, because an earlier % could only have left less to the later ones: the time
// is at most length times length, never exponential.
func (p *backtracker) match(s string) bool {
	at, restart, behind := 0, -1, ""
	for len(s) > 0 || at < len(p.pieces) {
		if at < len(p.pieces) {
			switch next := p.pieces[at]; {
			case next.wild == '%':
				at++
				restart, behind = at, s
				if at == len(p.pieces) {
					return true
				}
				continue
			case next.wild == '_' && len(s) > 0:
				_, n := utf8.DecodeRuneInString(s)
				s = s[n:]
				at++
				continue
			case next.wild == 0 && strings.HasPrefix(s, next.text):
				s = s[len(next.text):]
				at++
				continue
			}
		}
		if restart < 0 || behind == "" {
			return false
		}
		_, n := utf8.DecodeRuneInString(behind) // the % takes one character more
		behind = behind[n:]
		at, s = restart, behind
	}
	return true
}

// agree matches in all ways and fails if they do not give one answer.
func agree(t *testing.T, m *matcher, s, text, escape string) bool {
	t.Helper()
	want, valid := backtracking(text, escape)
	p, ok := compilePattern(text, escape, nil)
	if ok != valid {
		t.Fatalf("%q ESCAPE %q: %v, want %v", text, escape, ok, valid)
	}
	if !ok {
		return false
	}
	fits := want.match(s)
	m.forget()
	for _, name := range []*Property{nil, {Name: "a"}, {Name: "a"}} { // not kept, kept, kept already
		if got := m.match(&p, s, name); got != fits {
			t.Fatalf("%q LIKE %q ESCAPE %q, kept %v: %v, want %v", s, text, escape, name != nil, got, fits)
		}
	}
	return fits
}

// TestLikeAgreesWithBacktracking: short and long texts of few letters, so that patterns nearly
// fit, with characters of one to four bytes and pieces of characters.
func TestLikeAgreesWithBacktracking(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	letters := []string{"a", "b", "aa", "ab", "é", "\u20ac", "\U0001F600", "\xe2", "\x82", "\xff", "\xc3"}
	wild := []string{"%", "_", "%", "_", "__", "!", "!%"}
	draw := func(n, kinds int) string {
		var b strings.Builder
		for range n {
			b.WriteString(letters[random.IntN(kinds)])
		}
		return b.String()
	}
	var m matcher
	fitted := 0
	for i := range 30_000 {
		kinds := []int{2, 4, 7, len(letters)}[i%4]
		s := draw(random.IntN(1+[]int{4, 20, 90, 300}[i/4%4]), kinds)
		var text strings.Builder
		for range random.IntN(8) {
			switch at := random.IntN(len(s) + 1); random.IntN(3) {
			case 0:
				text.WriteString(wild[random.IntN(len(wild))])
			case 1:
				text.WriteString(draw(1, kinds))
			default: // a piece of the text itself
				text.WriteString(s[at:min(at+random.IntN(10), len(s))])
			}
		}
		escape := ""
		if i%3 == 0 {
			escape = "!"
		}
		if agree(t, &m, s, text.String(), escape) {
			fitted++
		}
	}
	if fitted < 1000 {
		t.Errorf("%d fitted: the test has lost its force", fitted)
	}
}

func FuzzLikeAgreesWithBacktracking(f *testing.F) {
	f.Add("aXbXc", "%X_", "")
	f.Add("\xe2\xe2\x82\xac", "%\xe2_", "")
	f.Add("\xc3\xc3\xa9", "%\xc3%\xa9", "")
	f.Add(strings.Repeat("a\u20ac", 40), "%\u20ac_%_a%", "")
	f.Fuzz(func(t *testing.T, s, text, escape string) {
		if len(s)+len(text) > 1000 || len(escape) > utf8.UTFMax {
			return
		}
		agree(t, &matcher{}, s, text, escape)
	})
}

// TestLikeAllocatesNothing, once it has room for the texts.
func TestLikeAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	short, long := strings.Repeat("ab", 20), strings.Repeat("a\u20acb", 10_000)
	p, _ := compilePattern("%a_b%b_a%", "", nil)
	var m matcher
	longName, shortName := Property{Name: "long"}, Property{Name: "short"}
	if n := testing.AllocsPerRun(20, func() {
		m.match(&p, short, nil)
		m.match(&p, long, &longName)
		m.match(&p, short, &shortName)
		m.forget()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
