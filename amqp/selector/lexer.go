package selector

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm/filter"
)

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	tokenEnd        tokenKind = iota
	tokenIdentifier           // text is the name
	tokenString               // text is the value
	tokenNumber               // text is the number as SQL writes it
	tokenSymbol               // an operator, punctuation, or a reserved word in capitals
)

// token is a lexical token.
type token struct {
	kind     tokenKind
	text     string
	source   string // as written
	position int    // of its first character, from 1
}

// is reports whether the token is this operator or word.
func (t *token) is(text string) bool { return t.kind == tokenSymbol && t.text == text }

// foundCharactersMax is the number of characters of a token that an error shows.
const foundCharactersMax = 32

// fails returns the error that something else is expected where the token is.
func (t *token) fails(expected string) error {
	found := "the end"
	if t.kind != tokenEnd {
		found = t.source
		if characters := []rune(found); len(characters) > foundCharactersMax {
			found = string(characters[:foundCharactersMax]) + "…"
		}
		found = strconv.Quote(found)
	}
	return &filter.SyntaxError{Position: t.position, Expected: expected, Found: found}
}

// lexer splits a selector, which is UTF-8, into tokens.
type lexer struct {
	text     string // what is left
	position int    // number of the first character of text, from 1
}

// take removes the first bytes of the text and returns them.
func (l *lexer) take(bytes int) string {
	taken := l.text[:bytes]
	l.text, l.position = l.text[bytes:], l.position+utf8.RuneCountInString(taken)
	return taken
}

// prefix returns the length of the longest prefix whose characters all match.
func prefix(text string, match func(rune) bool) int {
	if end := strings.IndexFunc(text, func(r rune) bool { return !match(r) }); end >= 0 {
		return end
	}
	return len(text)
}

func isIdentifierStart(r rune) bool { return r == '_' || r == '$' || unicode.IsLetter(r) }

func isIdentifierPart(r rune) bool { return isIdentifierStart(r) || unicode.IsDigit(r) }

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// next returns the next token.
func (l *lexer) next() (token, error) {
	l.take(prefix(l.text, unicode.IsSpace))
	t := token{position: l.position}
	if l.text == "" {
		return t, nil
	}
	first, _ := utf8.DecodeRuneInString(l.text)
	rest := l.text
	var err error
	switch {
	case isIdentifierStart(first):
		t.kind, t.text = tokenIdentifier, l.take(prefix(l.text, isIdentifierPart))
		switch word := strings.ToUpper(t.text); word {
		case "AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE":
			t.kind, t.text = tokenSymbol, word
		}
	case first == '\'':
		t.kind = tokenString
		t.text, err = l.quoted('\'')
	case first == '"':
		t.kind = tokenIdentifier
		if t.text, err = l.quoted('"'); err == nil && t.text == "" {
			err = (&token{position: t.position, kind: tokenIdentifier, source: `""`}).fails("a name between the quotes")
		}
	case isDigit(first), first == '.' && len(l.text) > 1 && isDigit(rune(l.text[1])):
		t.kind = tokenNumber
		t.text, err = l.number()
	default:
		t.kind = tokenSymbol
		t.text, err = l.symbol()
	}
	t.source = rest[:len(rest)-len(l.text)]
	return t, err
}

// quoted reads up to the closing quote; a doubled one stands for itself.
func (l *lexer) quoted(quote byte) (string, error) {
	var b strings.Builder
	l.take(1)
	for {
		end := strings.IndexByte(l.text, quote)
		if end < 0 {
			l.take(len(l.text))
			return "", (&token{position: l.position}).fails("a closing " + string(quote))
		}
		b.WriteString(l.take(end))
		l.take(1)
		if !strings.HasPrefix(l.text, string(quote)) {
			return b.String(), nil
		}
		b.WriteString(l.take(1))
	}
}

// number reads a literal of an integer or floating-point number as Java writes it, and returns it as SQL does.
func (l *lexer) number() (string, error) {
	start := token{position: l.position, kind: tokenNumber}
	end := 0
	digits := func() { end += prefix(l.text[end:], isDigit) }
	has := func(set string) bool { return end < len(l.text) && strings.IndexByte(set, l.text[end]) >= 0 }
	decimal, based := false, len(l.text) > 1 && l.text[0] == '0' && strings.IndexByte("xXbB", l.text[1]) >= 0
	if based {
		end = 2 + prefix(l.text[2:], func(r rune) bool { return strings.ContainsRune("0123456789abcdefABCDEF", r) })
	} else {
		digits()
		if has(".") {
			decimal = true
			end++
			digits()
		}
		if has("eE") {
			decimal = true
			end++
			if has("+-") {
				end++
			}
			digits()
		}
	}
	text := l.text[:end]
	switch {
	case !decimal && has("lL"):
		end++
	case !based && has("fFdD"):
		decimal = true
		end++
	}
	end += prefix(l.text[end:], isIdentifierPart)
	start.source = l.take(end)
	suffix := start.source[len(text):]
	if decimal {
		if _, err := strconv.ParseFloat(text, 64); err != nil || suffix != "" && !isOneOf(suffix, "fFdD") {
			return "", start.fails("a number")
		}
		if !strings.ContainsAny(text, ".eE") {
			text += "." // without it, SQL reads an integer
		}
		return text, nil
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil || suffix != "" && !isOneOf(suffix, "lL") {
		return "", start.fails("an integer of 64 bits")
	}
	return strconv.FormatUint(n, 10), nil
}

// isOneOf reports whether a text is one of the characters of a set.
func isOneOf(text, set string) bool { return len(text) == 1 && strings.Contains(set, text) }

// symbol reads an operator or punctuation.
func (l *lexer) symbol() (string, error) {
	for _, known := range [...]string{"<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ","} {
		if strings.HasPrefix(l.text, known) {
			return l.take(len(known)), nil
		}
	}
	_, n := utf8.DecodeRuneInString(l.text)
	return "", (&token{position: l.position, kind: tokenSymbol, source: l.text[:n]}).fails("an identifier, a literal or an operator")
}
