package selector

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm/filter"
)

// CharactersMax is the longest selector, in Unicode characters. The SQL filter that it becomes has the same limit.
const CharactersMax = filter.TextCharactersMax

var errEncoding = errors.New("the selector is not UTF-8")

// everything is the filter of an empty selector, which selects all messages.
const everything = "1=1"

// SQL translates a selector to an SQL filter. Errors are fit for the client: they say where the selector is wrong, or
// that it is too long or too deeply nested.
func SQL(selector string) (string, error) {
	text, err := translate(selector)
	if err != nil {
		return "", err
	}
	if _, err := filter.Parse(text, nil); err != nil {
		return "", fmt.Errorf("in the SQL filter that the selector becomes, %w", err)
	}
	return text, nil
}

func translate(selector string) (string, error) {
	if !utf8.ValidString(selector) {
		return "", errEncoding
	}
	if n := utf8.RuneCountInString(selector); n > CharactersMax {
		return "", &filter.SyntaxError{
			Position: CharactersMax + 1, Expected: fmt.Sprintf("the end, after at most %d characters", CharactersMax),
			Found: fmt.Sprintf("%d characters", n),
		}
	}
	p := parser{lexer: lexer{text: selector, position: 1}}
	if err := p.advance(); err != nil {
		return "", err
	}
	if p.token.kind == tokenEnd {
		return everything, nil
	}
	root, err := p.or()
	if err == nil {
		err = root.mustBe(condition)
	}
	if err == nil && p.token.kind != tokenEnd {
		err = p.token.fails("an operator or the end")
	}
	return root.text, err
}

// operandKind is what an operand can be used as.
type operandKind uint8

const (
	value     operandKind = 1 << iota // of a comparison or of arithmetic
	condition                         // of AND, OR, NOT, or the whole selector
)

// operand is a part of a selector, in SQL.
type operand struct {
	text    string
	start   token
	kinds   operandKind
	id      bool    // JMSMessageID or JMSCorrelationID
	name    bool    // an identifier
	literal *string // the value of a string
}

// mustBe returns an error unless the operand can be used as a kind.
func (o *operand) mustBe(kind operandKind) error {
	switch {
	case o.kinds&kind != 0:
		return nil
	case kind == condition:
		return o.start.fails("a condition that begins")
	}
	return o.start.fails("a value, not a condition, that begins")
}

// parser is a recursive descent parser: a method for each level of precedence.
type parser struct {
	lexer lexer
	token token // the current token
	depth int
}

func (p *parser) advance() (err error) {
	p.token, err = p.lexer.next()
	return err
}

// accept advances if the token is this one, and reports whether it was.
func (p *parser) accept(text string) (bool, error) {
	if !p.token.is(text) {
		return false, nil
	}
	return true, p.advance()
}

// expect advances if the token is this one, and fails if not.
func (p *parser) expect(text string) error {
	if !p.token.is(text) {
		return p.token.fails(text)
	}
	return p.advance()
}

// nested parses a level below the current token, which is a parenthesis, a sign or NOT.
func (p *parser) nested(level func() (operand, error)) (operand, error) {
	if p.depth == filter.DepthMax {
		return operand{}, p.token.fails("at most " + strconv.Itoa(filter.DepthMax) + " levels of nesting")
	}
	p.depth++
	defer func() { p.depth-- }()
	if err := p.advance(); err != nil {
		return operand{}, err
	}
	return level()
}

// part parses a level whose result must be of a kind.
func part(level func() (operand, error), kind operandKind) (operand, error) {
	o, err := level()
	if err == nil {
		err = o.mustBe(kind)
	}
	return o, err
}

// chain parses a [operator b [operator c …]], grouped from the left.
func (p *parser) chain(kind operandKind, level func() (operand, error), operators ...string) (operand, error) {
	left, err := level()
	if err != nil {
		return left, err
	}
	var b strings.Builder
	for {
		operator := ""
		for _, o := range operators {
			if p.token.is(o) {
				operator = o
			}
		}
		if operator == "" {
			break
		}
		if b.Len() == 0 {
			if err := left.mustBe(kind); err != nil {
				return left, err
			}
			b.WriteString(left.text)
		}
		if err := p.advance(); err != nil {
			return left, err
		}
		right, err := part(level, kind)
		if err != nil {
			return left, err
		}
		b.WriteString(" " + operator + " " + right.text)
	}
	if b.Len() > 0 {
		left = operand{text: b.String(), start: left.start, kinds: kind}
	}
	return left, nil
}

func (p *parser) or() (operand, error) { return p.chain(condition, p.and, "OR") }

func (p *parser) and() (operand, error) { return p.chain(condition, p.not, "AND") }

func (p *parser) not() (operand, error) {
	start := p.token
	if !start.is("NOT") {
		return p.predicate()
	}
	of, err := p.nested(func() (operand, error) { return part(p.not, condition) })
	return operand{text: "NOT " + of.text, start: start, kinds: condition}, err
}

// predicate parses a value and the predicate on it, if any.
func (p *parser) predicate() (operand, error) {
	left, err := p.sum()
	if err != nil {
		return left, err
	}
	operator := p.token
	switch {
	case operator.is("="), operator.is("<>"), operator.is("<"), operator.is("<="), operator.is(">"), operator.is(">="):
		return p.comparison(left)
	case operator.is("IS"), operator.is("NOT"), operator.is("BETWEEN"), operator.is("IN"), operator.is("LIKE"):
	default:
		return left, nil
	}
	if err := left.mustBe(value); err != nil {
		return left, err
	}
	text, err := p.test(left)
	return operand{text: text, start: left.start, kinds: condition}, err
}

func (p *parser) comparison(left operand) (operand, error) {
	operator := p.token.text
	if err := left.mustBe(value); err != nil {
		return left, err
	}
	if err := p.advance(); err != nil {
		return left, err
	}
	right, err := part(p.sum, value)
	if err != nil {
		return left, err
	}
	text := left.comparedWith(&right) + " " + operator + " " + right.comparedWith(&left)
	return operand{text: text, start: left.start, kinds: condition}, nil
}

// comparedWith returns the operand in SQL; a string that is compared with an id is an id as clients of JMS show it.
func (o *operand) comparedWith(other *operand) string {
	if o.literal != nil && other.id {
		return quote(idOf(*o.literal))
	}
	return o.text
}

// test parses the rest of a predicate that begins with a word, and returns all of it.
func (p *parser) test(left operand) (string, error) {
	if is, err := p.accept("IS"); is || err != nil {
		return p.null(left, err)
	}
	not := ""
	if negated, err := p.accept("NOT"); err != nil {
		return "", err
	} else if negated {
		not = "NOT "
	}
	operator := p.token
	if !operator.is("BETWEEN") && !operator.is("IN") && !operator.is("LIKE") {
		return "", operator.fails("BETWEEN, IN or LIKE")
	}
	if !operator.is("BETWEEN") && !left.name {
		return "", operator.fails("an identifier before IN or LIKE")
	}
	if err := p.advance(); err != nil {
		return "", err
	}
	switch operator.text {
	case "IN":
		return p.in(left, not)
	case "LIKE":
		return p.like(left, not)
	}
	return p.between(left, not)
}

// null parses what follows IS.
func (p *parser) null(left operand, err error) (string, error) {
	if err != nil {
		return "", err
	}
	if !left.name {
		return "", left.start.fails("an identifier before IS NULL")
	}
	not, err := p.accept("NOT")
	if err != nil {
		return "", err
	}
	if not {
		return left.text + " IS NOT NULL", p.expect("NULL")
	}
	return left.text + " IS NULL", p.expect("NULL")
}

// between parses what follows BETWEEN. SQL filters have no such operator. The value stands in the result twice; it
// cannot contain another BETWEEN, so the result is at most twice as long as the selector.
func (p *parser) between(left operand, not string) (string, error) {
	low, err := part(p.sum, value)
	if err == nil {
		err = p.expect("AND")
	}
	if err != nil {
		return "", err
	}
	high, err := part(p.sum, value)
	return fmt.Sprintf("%s(%s >= %s AND %s <= %s)", not, left.text, low.text, left.text, high.text), err
}

// in parses what follows IN: a list of strings.
func (p *parser) in(left operand, not string) (string, error) {
	if err := p.expect("("); err != nil {
		return "", err
	}
	var list []string
	for {
		element, err := p.string()
		if err != nil {
			return "", err
		}
		list = append(list, element.comparedWith(&left))
		if more, err := p.accept(","); err != nil {
			return "", err
		} else if more {
			continue
		}
		if !p.token.is(")") {
			return "", p.token.fails(", or )")
		}
		return left.text + " " + not + "IN (" + strings.Join(list, ", ") + ")", p.advance()
	}
}

// like parses what follows LIKE.
func (p *parser) like(left operand, not string) (string, error) {
	pattern, err := p.string()
	if err != nil {
		return "", err
	}
	text := left.text + " " + not + "LIKE " + pattern.text
	if escaped, err := p.accept("ESCAPE"); !escaped || err != nil {
		return text, err
	}
	escape, err := p.string()
	return text + " ESCAPE " + escape.text, err
}

// string parses a literal of a string.
func (p *parser) string() (operand, error) {
	t := p.token
	if t.kind != tokenString {
		return operand{}, t.fails("a string between single quotes")
	}
	return operand{text: quote(t.text), start: t, kinds: value, literal: &t.text}, p.advance()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (p *parser) sum() (operand, error) { return p.chain(value, p.product, "+", "-") }

func (p *parser) product() (operand, error) { return p.chain(value, p.sign, "*", "/") }

func (p *parser) sign() (operand, error) {
	start := p.token
	if !start.is("-") && !start.is("+") {
		return p.primary()
	}
	of, err := p.nested(func() (operand, error) { return part(p.sign, value) })
	return operand{text: start.text + of.text, start: start, kinds: value}, err
}

// primary parses literals, identifiers, and anything in parentheses.
func (p *parser) primary() (operand, error) {
	start := p.token
	switch {
	case start.is("("):
		o, err := p.nested(p.or)
		if err != nil {
			return o, err
		}
		return operand{text: "(" + o.text + ")", start: start, kinds: o.kinds}, p.expect(")")
	case start.is("TRUE"), start.is("FALSE"):
		return operand{text: start.text, start: start, kinds: value | condition}, p.advance()
	case start.kind == tokenNumber:
		return operand{text: start.text, start: start, kinds: value}, p.advance()
	case start.kind == tokenString:
		return p.string()
	case start.kind == tokenIdentifier:
		return p.identifier()
	}
	return operand{}, start.fails("an identifier, a literal or a parenthesis")
}

// header returns the property of a message that a header field of JMS is in the AMQP mapping of JMS, if filters see it.
func header(name string) (property string, ok bool) {
	switch name {
	case "JMSMessageID":
		return filter.MessageID, true
	case "JMSCorrelationID":
		return filter.CorrelationID, true
	case "JMSType":
		return filter.Label, true
	case "JMSXGroupID":
		return filter.SessionID, true
	}
	return "", false
}

func (p *parser) identifier() (operand, error) {
	t := p.token
	o := operand{text: userProperty(t.text), start: t, kinds: value | condition, name: true}
	if property, ok := header(t.text); ok {
		o.text, o.id = "sys."+property, property == filter.MessageID || property == filter.CorrelationID
	} else if strings.HasPrefix(t.text, "JMS") {
		return o, t.fails("a property of the message, or one of JMSMessageID, JMSCorrelationID, JMSType and JMSXGroupID, which are the header fields that selectors see here,")
	}
	return o, p.advance()
}

// userProperty returns the name of an application property in SQL.
func userProperty(name string) string {
	isLetter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	plain := prefix(name, func(r rune) bool { return isLetter(r) || isDigit(r) || r == '_' }) == len(name)
	if plain && isLetter(rune(name[0])) && !isReserved(name) {
		return name
	}
	return "[" + strings.ReplaceAll(name, "]", "]]") + "]"
}

// isReserved reports whether SQL filters reserve a name. Most of them can be names in double quotes only.
func isReserved(name string) bool {
	switch strings.ToUpper(name) {
	case "AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "EXISTS":
		return true
	}
	return false
}

// idOf returns an id as filters compare it. Clients of JMS show an id that is not a string that begins with "ID:" with
// a prefix that tells its type (AMQP mapping of JMS, 3.2.1.1). A binary id stays as it is, and equals none.
func idOf(shown string) string {
	for _, kind := range [...]string{"NO_PREFIX:", "STRING:", "ULONG:"} {
		if id, ok := strings.CutPrefix(shown, "ID:AMQP_"+kind); ok {
			return id
		}
	}
	if id, ok := strings.CutPrefix(shown, "ID:AMQP_UUID:"); ok {
		return strings.ToLower(id)
	}
	return shown
}
