package filter

import (
	"strings"
	"unicode/utf8"
)

// Scope is the set of properties that a name refers to.
type Scope uint8

// The scopes. User is the default of the language.
const (
	User   Scope = 0 // application properties, named by senders
	System Scope = 1 // properties that the service defines; written sys.Name
)

// String returns the scope as written in a filter.
func (s Scope) String() string {
	if s == System {
		return "sys"
	}
	return "user"
}

// Property names a property of a message.
type Property struct {
	// Name is spelled like the constants below for a System property that is among them, else as it
	// was written. Two names are equal if their Folds are.
	Name  string `json:"Name"`
	Scope Scope  `json:"Scope"`
}

// Fold returns the form in which names of properties are compared: capital letters of ASCII,
// Latin-1, Greek and Cyrillic become small, everything else stays. The Unicode tables of the Go
// release are deliberately not used: two replicas built with different releases must agree. It
// allocates only if something changes.
func Fold(name string) string {
	changed := false
	for _, r := range name {
		if toLower(r) != r {
			changed = true
			break
		}
	}
	if !changed {
		return name
	}
	var b strings.Builder
	b.Grow(len(name))
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 {
			b.WriteByte(name[i]) // not a character: stays as it is
		} else {
			b.WriteRune(toLower(r))
		}
		i += n
	}
	return b.String()
}

func toLower(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z',
		0xC0 <= r && r <= 0xDE && r != 0xD7,    // À to Þ without ×
		0x391 <= r && r <= 0x3A9 && r != 0x3A2, // Α to Ω, one is unassigned
		0x410 <= r && r <= 0x42F:               // А to Я
		return r + 0x20
	case 0x400 <= r && r <= 0x40F: // Ѐ to Џ
		return r + 0x50
	}
	return r
}

// isPlainName reports whether a name can be written without brackets: a letter, then letters,
// digits and underscores. It does not check whether the name is a reserved word.
func isPlainName(name string) bool {
	for i, r := range name {
		if !isLetter(r) && (i == 0 || !isDigit(r) && r != '_') {
			return false
		}
	}
	return name != "" && utf8.ValidString(name)
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isLetter reports whether a plain name can begin with r. Beyond ASCII these are all characters
// that are not space, control, punctuation or symbol in the common blocks; see Fold for why no
// table is used.
func isLetter(r rune) bool {
	switch {
	case r < 0x80:
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	case r < 0xC0:
		return r == 0xAA || r == 0xB5 || r == 0xBA // ª µ º
	case r == 0xD7, r == 0xF7, // × ÷
		0x2000 <= r && r <= 0x2BFF, // punctuation, symbols, arrows
		0x3000 <= r && r <= 0x3004, // ideographic space and marks
		0xE000 <= r && r <= 0xF8FF, // private
		r == 0x1680, r == 0xFEFF, r > 0xFFEF && r < 0x10000,
		r == utf8.RuneError:
		return false
	}
	return true
}
