package filter

import "unicode/utf8"

// pattern is a compiled LIKE pattern, with one unit for each literal byte and one for each
// wildcard.
type pattern struct {
	units []unit
	// utf8 tells whether the pattern is UTF-8. Other patterns, which only a message can contain,
	// are matched character by character, see matchBytewise.
	utf8 bool
}

// unit is a literal byte, or a wildcard.
type unit uint16

const (
	anyCharacter  unit = 256 + iota // _
	anyCharacters                   // %
)

// compilePattern compiles a pattern into units, whose memory is reused. escape is the empty string
// for none, else one character: the character after it in the pattern stands for itself. ok is
// false if the escape is longer or the pattern ends in it.
func compilePattern(text, escape string, units []unit) (p pattern, ok bool) {
	if escape != "" && utf8.RuneCountInString(escape) != 1 {
		return pattern{}, false
	}
	p.units, p.utf8 = units[:0], utf8.ValidString(text)
	for len(text) > 0 {
		_, n := utf8.DecodeRuneInString(text)
		switch c := text[:n]; c {
		case escape:
			if text = text[n:]; text == "" {
				return pattern{units: p.units}, false
			}
			_, n = utf8.DecodeRuneInString(text)
			p.literal(text[:n])
		case "%":
			if last := len(p.units) - 1; last < 0 || p.units[last] != anyCharacters {
				p.units = append(p.units, anyCharacters)
			}
		case "_":
			p.units = append(p.units, anyCharacter)
		default:
			p.literal(c)
		}
		text = text[n:]
	}
	return p, true
}

func (p *pattern) literal(text string) {
	for i := range len(text) {
		p.units = append(p.units, unit(text[i]))
	}
}

// matchBytewise reports whether all of s matches a pattern that is not UTF-8, one step after the
// other. On a mismatch it returns to the last % only: the time is at most length times length. It
// defines the meaning of such patterns, which differs from that of an automaton: a byte of the
// pattern may end within a character of s, and the following characters are read from there.
func (p *pattern) matchBytewise(s string) bool {
	at, restart, behind := 0, -1, ""
	for len(s) > 0 || at < len(p.units) {
		if at < len(p.units) {
			switch next := p.units[at]; {
			case next == anyCharacters:
				at++
				restart, behind = at, s
				continue
			case next == anyCharacter && len(s) > 0:
				_, n := utf8.DecodeRuneInString(s)
				s = s[n:]
				at++
				continue
			case next < anyCharacter && len(s) > 0 && unit(s[0]) == next:
				s = s[1:]
				at++
				continue
			}
		}
		if restart < 0 || behind == "" {
			return false
		}
		if restart == len(p.units) {
			return true
		}
		_, n := utf8.DecodeRuneInString(behind) // the % matches one character more
		behind = behind[n:]
		at, s = restart, behind
	}
	return true
}
