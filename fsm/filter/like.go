package filter

import (
	"strings"
	"unicode/utf8"
)

// pattern is a LIKE pattern taken apart: pieces of text, with wildcards between them.
type pattern struct{ pieces []piece }

// piece is a text that must stand here, or a wildcard.
type piece struct {
	text string // if wild is 0
	wild byte   // '%' any characters, '_' one character
}

// compile takes a pattern apart. escape is the empty string for none, else one character:
// what follows it in the pattern stands for itself, whatever it is. ok is false if the
// escape is longer or the pattern ends in it.
func compile(text, escape string) (p *pattern, ok bool) {
	if escape != "" && utf8.RuneCountInString(escape) != 1 {
		return nil, false
	}
	p = &pattern{}
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
func (p *pattern) match(s string) bool {
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

// test is Unknown unless all operands are strings.
func (l *like) test(m Message) (Truth, error) {
	v, err := l.of.value(m)
	if err != nil {
		return Unknown, err
	}
	p := l.ready
	if p == nil {
		if p, err = l.pattern(m); p == nil {
			return Unknown, err
		}
	}
	if v.kind != KindText {
		return Unknown, nil
	}
	return truth(p.match(v.text) != l.negated), nil
}

// pattern is nil without error if an operand is not a string.
func (l *like) pattern(m Message) (*pattern, error) {
	text, err := l.text.value(m)
	if err != nil {
		return nil, err
	}
	escape := Text("")
	if l.escape != nil {
		if escape, err = l.escape.value(m); err != nil {
			return nil, err
		}
		if escape.kind == KindText && escape.text == "" {
			return nil, l.wrongEscape()
		}
	}
	if text.kind != KindText || escape.kind != KindText {
		return nil, nil //nolint:nilnil // documented: no pattern is Unknown
	}
	p, ok := compile(text.text, escape.text)
	if !ok {
		return nil, l.wrongEscape()
	}
	return p, nil
}

func (l *like) wrongEscape() error {
	return &EvalError{Err: ErrEscape, Detail: "in LIKE", Position: l.position}
}
