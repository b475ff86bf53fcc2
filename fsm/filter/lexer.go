package filter

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	tokenEnd       tokenKind = iota
	tokenName                // a plain name that is not a reserved word
	tokenDelimited           // [name] or "name"
	tokenParameter           // @name
	tokenInteger
	tokenDecimal
	tokenText
	tokenSign // operators and punctuation; text has it
	tokenWord // a reserved word; text has it in capitals
)

// token is a lexical token.
type token struct {
	kind     tokenKind
	position int    // of its first character, from 1
	text     string // name or string without quotes, digits, operator, or word
	source   string // as written
}

// is reports whether the token is this operator or word.
func (t *token) is(text string) bool {
	return (t.kind == tokenSign || t.kind == tokenWord) && t.text == text
}

// describe returns the token as errors show it.
func (t *token) describe() string {
	if t.kind == tokenEnd {
		return "the end"
	}
	const most = 32
	for i := range t.source {
		if i >= most {
			return strconv.Quote(t.source[:i] + "…")
		}
	}
	return strconv.Quote(t.source)
}

// lexer splits a text into tokens, one at a time.
type lexer struct {
	text     string
	at       int  // byte
	position int  // number of the character at at, from 1
	action   bool // SET and REMOVE are words
	selector bool // the dialect of SelectorSQL
}

func (l *lexer) peek() rune {
	r, _ := utf8.DecodeRuneInString(l.text[l.at:])
	return r
}

func (l *lexer) more() bool { return l.at < len(l.text) }

func (l *lexer) skip() {
	_, n := utf8.DecodeRuneInString(l.text[l.at:])
	l.at += n
	l.position++
}

func (l *lexer) skipWhile(match func(rune) bool) {
	for l.more() && match(l.peek()) {
		l.skip()
	}
}

func isSpace(r rune) bool {
	return r == ' ' || '\t' <= r && r <= '\r' || r == 0xA0
}

func isNameRest(r rune) bool { return isLetter(r) || isDigit(r) || r == '_' }

func (l *lexer) isNameRest(r rune) bool { return isNameRest(r) || l.selector && r == '$' }

// next returns the next token.
func (l *lexer) next() (token, error) {
	l.skipWhile(isSpace)
	t := token{position: l.position}
	start := l.at
	var err error
	switch r := l.peek(); {
	case !l.more():
		return t, nil
	case isLetter(r):
		l.skipWhile(l.isNameRest)
		l.name(&t, l.text[start:l.at])
	case l.selector && (r == '_' || r == '$'):
		l.skipWhile(l.isNameRest)
		t.kind, t.text = tokenName, l.text[start:l.at]
	case r == '[' && !l.selector:
		t.kind = tokenDelimited
		t.text, err = l.quoted(']', "a closing ]")
	case r == '"':
		t.kind = tokenDelimited
		t.text, err = l.quoted('"', `a closing "`)
	case r == '\'':
		t.kind = tokenText
		t.text, err = l.quoted('\'', "a closing '")
	case r == '@' && !l.selector:
		l.skip()
		l.skipWhile(isNameRest)
		t.kind, t.text = tokenParameter, l.text[start+1:l.at]
		if t.text == "" {
			err = l.fail("the name of a parameter")
		}
	case isDigit(r), r == '.' && l.at+1 < len(l.text) && isDigit(rune(l.text[l.at+1])):
		err = l.number(&t)
	default:
		err = l.sign(&t)
	}
	t.source = l.text[start:l.at]
	if err == nil && t.kind == tokenDelimited && t.text == "" {
		err = &SyntaxError{Position: t.position, Expected: "a name", Found: t.describe()}
	}
	return t, err
}

// fail returns an error about the current character.
func (l *lexer) fail(expected string) error {
	found := "the end"
	if l.more() {
		_, n := utf8.DecodeRuneInString(l.text[l.at:])
		found = strconv.Quote(l.text[l.at : l.at+n])
	}
	return &SyntaxError{Position: l.position, Expected: expected, Found: found}
}

// name distinguishes names and reserved words.
func (l *lexer) name(t *token, name string) {
	t.kind, t.text = tokenName, name
	word := reservedWord(name)
	switch {
	case (word == "SET" || word == "REMOVE") && !l.action, word == "EXISTS" && l.selector:
		return
	case l.selector && Fold(name) == "between":
		word = "BETWEEN"
	}
	if word != "" {
		t.kind, t.text = tokenWord, word
	}
}

// reservedWord returns the reserved word that a name is, in capitals, or "".
func reservedWord(name string) string {
	const longest = len("REMOVE")
	if len(name) > longest {
		return ""
	}
	switch word := Fold(name); word {
	case "and", "or", "not", "in", "like", "escape", "is", "null", "true", "false", "exists", "set", "remove":
		return strings.ToUpper(word)
	}
	return ""
}

// quoted reads up to the closing character; a doubled one stands for itself.
func (l *lexer) quoted(end rune, expected string) (string, error) {
	l.skip()
	var b strings.Builder
	start := l.at
	for l.more() {
		r := l.peek()
		if r == utf8.RuneError && !strings.HasPrefix(l.text[l.at:], string(utf8.RuneError)) {
			return "", l.fail("UTF-8")
		}
		if r != end {
			l.skip()
			continue
		}
		b.WriteString(l.text[start:l.at])
		l.skip()
		if !l.more() || l.peek() != end {
			return b.String(), nil
		}
		start = l.at // the second of the two stands for itself
		l.skip()
	}
	return "", l.fail(expected)
}

// number reads digits, with a point and an exponent for decimals.
func (l *lexer) number(t *token) error {
	start := l.at
	t.kind = tokenInteger
	if l.selector {
		return l.javaNumber(t)
	}
	l.skipWhile(isDigit)
	if l.more() && l.peek() == '.' {
		t.kind = tokenDecimal
		l.skip()
		l.skipWhile(isDigit)
	}
	if l.more() && (l.peek() == 'e' || l.peek() == 'E') {
		t.kind = tokenDecimal
		l.skip()
		if l.more() && (l.peek() == '+' || l.peek() == '-') {
			l.skip()
		}
		if !l.more() || !isDigit(l.peek()) {
			return l.fail("the digits of an exponent")
		}
		l.skipWhile(isDigit)
	}
	if l.more() && (isNameRest(l.peek()) || l.peek() == '.') {
		return l.fail("the end of the number")
	}
	t.text = l.text[start:l.at]
	return nil
}

// sign reads an operator or punctuation.
func (l *lexer) sign(t *token) error {
	t.kind = tokenSign
	signs := "=<>+-*/%(),.;"
	if l.selector {
		signs = "=<>+-*/(),"
	}
	if l.at+2 <= len(l.text) {
		switch two := l.text[l.at : l.at+2]; {
		case two == "<>", two == "<=", two == ">=", two == "!=" && !l.selector:
			l.skip()
			l.skip()
			t.text = two
			return nil
		}
	}
	if r := l.peek(); r == '!' || r >= utf8.RuneSelf || !strings.ContainsRune(signs, r) {
		return l.fail("a name, a value or an operator")
	}
	t.text = l.text[l.at : l.at+1]
	l.skip()
	return nil
}

// javaNumber reads a literal of an integer or floating-point number as Java writes it.
func (l *lexer) javaNumber(t *token) error {
	start := l.at
	begin := l.text[start:min(start+2, len(l.text))]
	based := begin == "0x" || begin == "0X" || begin == "0b" || begin == "0B"
	exponent := false // the last character begins an exponent, which may have a sign
	l.skipWhile(func(r rune) bool {
		part := l.isNameRest(r) || r == '.' || exponent && (r == '+' || r == '-')
		exponent = !based && (r == 'e' || r == 'E')
		return part
	})
	t.source = l.text[start:l.at]
	foreign := strings.ContainsAny(t.source, "_oO") // Go accepts these, selectors do not
	if based || !strings.ContainsAny(t.source, ".eEfFdD") {
		n, err := strconv.ParseUint(withoutSuffix(t.source, "lL"), 0, 64)
		if err != nil || foreign {
			return &SyntaxError{Position: t.position, Expected: "an integer of 64 bits", Found: t.describe()}
		}
		t.text = strconv.FormatUint(n, 10)
		return nil
	}
	t.kind, t.text = tokenDecimal, withoutSuffix(t.source, "fFdD")
	if _, err := strconv.ParseFloat(t.text, 64); err != nil || foreign {
		return &SyntaxError{Position: t.position, Expected: "a number", Found: t.describe()}
	}
	return nil
}

// withoutSuffix removes the last character if it is one of a set.
func withoutSuffix(text, set string) string {
	if last := len(text) - 1; strings.IndexByte(set, text[last]) >= 0 {
		return text[:last]
	}
	return text
}
