package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parameter is the value of @Name in a text: Bool, Int, Double, Text or NULL, as the service
// allows, or a timestamp. A leading @ is not part of Name.
type Parameter struct {
	Name  string `json:"Name"`
	Value Value  `json:"Value"`
}

// Expr is a parsed filter. Any number of goroutines may use it.
type Expr struct {
	root     condition
	unusable error // see Check
}

// Check returns a *SyntaxError if the filter uses a system property that no message has while rules are evaluated: the token or
// the end of a lock. It is for new rules: Parse accepts the property, because a stored rule stays valid.
func (e *Expr) Check() error { return e.unusable }

// parser is a recursive descent parser: each level of precedence is a method, in the order of
// SQL-92: OR, AND, NOT, predicates, sums, products, signs.
type parser struct {
	lexer      lexer
	token      token // the current token
	parameters []Parameter
	depth      int
	unusable   error // of the first property that Check refuses
	ids        int   // calls of newid() so far
}

// operand is the result of a level: either a term or a condition. Parentheses may contain either,
// so the user of an operand decides which of them it must be.
type operand struct {
	term      term
	condition condition
	start     token
}

// Parse parses a filter. It refuses texts over TextCharactersMax, nesting over DepthMax, parameters
// over their limits and undefined parameters; unused parameters are allowed. The error is a
// *SyntaxError or wraps ErrInvalid.
func Parse(text string, parameters []Parameter) (*Expr, error) {
	if err := checkLength(text); err != nil {
		return nil, err
	}
	return parse(text, parameters)
}

// parse is Parse without the limit of the text.
func parse(text string, parameters []Parameter) (*Expr, error) {
	p, err := newParser(text, parameters, false)
	if err != nil {
		return nil, err
	}
	return p.whole()
}

// whole parses a filter up to the end.
func (p *parser) whole() (*Expr, error) {
	root, err := p.conditionHere(p.or)
	if err != nil {
		return nil, err
	}
	if p.token.kind != tokenEnd {
		return nil, p.fail("an operator or the end")
	}
	return &Expr{root: root, unusable: p.unusable}, nil
}

// checkLength refuses texts that are too long, before any work is done.
func checkLength(text string) error {
	if n := utf8.RuneCountInString(text); n > TextCharactersMax {
		return &SyntaxError{
			Position: TextCharactersMax + 1, Expected: "the end, after at most " + strconv.Itoa(TextCharactersMax) + " characters",
			Found: strconv.Itoa(n) + " characters",
		}
	}
	return nil
}

func newParser(text string, parameters []Parameter, action bool) (*parser, error) {
	parameters, err := sortParameters(parameters)
	if err != nil {
		return nil, err
	}
	p := &parser{lexer: lexer{text: text, position: 1, action: action}, parameters: parameters}
	return p, p.advance()
}

// sortParameters returns a copy of the parameters, with folded names, sorted by name, so that their
// order has no influence.
func sortParameters(parameters []Parameter) ([]Parameter, error) {
	if len(parameters) > ParametersMax {
		return nil, fmt.Errorf("%w: %d parameters, %d at most", ErrInvalid, len(parameters), ParametersMax)
	}
	out := slices.Clone(parameters)
	for i := range out {
		out[i].Name = Fold(strings.TrimPrefix(out[i].Name, "@"))
		if n := len(out[i].Name) + out[i].Value.size(); n > ParameterBytesMax {
			return nil, fmt.Errorf("%w: a parameter of %d bytes, %d at most", ErrInvalid, n, ParameterBytesMax)
		}
	}
	slices.SortFunc(out, func(a, b Parameter) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(out); i++ {
		if out[i].Name == out[i-1].Name {
			return nil, fmt.Errorf("%w: parameter @%s twice", ErrInvalid, out[i].Name)
		}
	}
	return out, nil
}

func (p *parser) advance() (err error) {
	p.token, err = p.lexer.next()
	return err
}

func (p *parser) fail(expected string) error {
	return &SyntaxError{Position: p.token.position, Expected: expected, Found: p.token.describe()}
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
		return p.fail(text)
	}
	return p.advance()
}

// enter adds a level of nesting; leave removes it.
func (p *parser) enter() error {
	p.depth++
	if p.depth > DepthMax {
		return &SyntaxError{Position: p.token.position, Expected: "at most " + strconv.Itoa(DepthMax) + " levels of nesting", Found: "more"}
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// asCondition converts an operand to a condition. Terms that may be boolean can be converted:
// properties, parameters, TRUE and FALSE.
func (o *operand) asCondition() (condition, error) {
	if o.condition != nil {
		return o.condition, nil
	}
	switch t := o.term.(type) {
	case *property, *namedProperty:
		return termTruth{o.term}, nil
	case parameter:
		if t.v.kind == KindBool || t.v.kind == KindNull {
			return termTruth{t}, nil
		}
	case constant:
		if t.v.kind == KindBool || t.v.kind == KindNull {
			return termTruth{t}, nil
		}
	}
	return nil, &SyntaxError{Position: o.start.position, Expected: "a condition", Found: "the value that begins with " + o.start.describe()}
}

func (o *operand) asTerm() (term, error) {
	if o.term != nil {
		return o.term, nil
	}
	return nil, &SyntaxError{Position: o.start.position, Expected: "a value", Found: "the condition that begins with " + o.start.describe()}
}

func (p *parser) conditionHere(level func() (operand, error)) (condition, error) {
	o, err := level()
	if err != nil {
		return nil, err
	}
	return o.asCondition()
}

func (p *parser) termHere(level func() (operand, error)) (term, error) {
	o, err := level()
	if err != nil {
		return nil, err
	}
	return o.asTerm()
}

func (p *parser) or() (operand, error) { return p.chain("OR", p.and) }

func (p *parser) and() (operand, error) { return p.chain("AND", p.not) }

// chain parses a [word b [word c …]].
func (p *parser) chain(word string, level func() (operand, error)) (operand, error) {
	first, err := level()
	if err != nil || !p.token.is(word) {
		return first, err
	}
	c, err := first.asCondition()
	if err != nil {
		return operand{}, err
	}
	all := &logic{of: []condition{c}, or: word == "OR"}
	for p.token.is(word) {
		if err := p.advance(); err != nil {
			return operand{}, err
		}
		if c, err = p.conditionHere(level); err != nil {
			return operand{}, err
		}
		all.of = append(all.of, c)
	}
	return operand{condition: all, start: first.start}, nil
}

func (p *parser) not() (operand, error) {
	start := p.token
	if !p.token.is("NOT") {
		return p.predicate()
	}
	if err := p.enter(); err != nil {
		return operand{}, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return operand{}, err
	}
	c, err := p.conditionHere(p.not)
	return operand{condition: not{c}, start: start}, err
}

// predicate parses a term and the predicate on it, if any.
func (p *parser) predicate() (operand, error) {
	left, err := p.sum()
	if err != nil {
		return operand{}, err
	}
	var read func(of term) (condition, error)
	switch t := &p.token; {
	case t.is("="), t.is("<>"), t.is("!="), t.is("<"), t.is("<="), t.is(">"), t.is(">="):
		read = p.comparison
	case t.is("IS"):
		read = p.null
	case t.is("NOT"), t.is("IN"), t.is("LIKE"), t.is("BETWEEN"):
		read = p.membership
	default:
		return left, nil
	}
	of, err := left.asTerm()
	if err != nil {
		return operand{}, err
	}
	c, err := read(of)
	return operand{condition: c, start: left.start}, err
}

func (p *parser) comparison(a term) (condition, error) {
	op := p.token.text
	if op == "!=" {
		op = "<>"
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	b, err := p.termHere(p.sum)
	if err != nil {
		return nil, err
	}
	return newComparison(p.shownID(a, b), op, p.shownID(b, a)), nil
}

func newComparison(a term, op string, b term) condition {
	c := &comparison{a: a, b: b, op: op, equal: op == "="}
	switch b := b.(type) {
	case constant:
		c.value = &b.v
	case parameter:
		c.value = &b.v
	}
	return c
}

func (p *parser) null(of term) (condition, error) {
	switch of.(type) {
	case *property, *namedProperty:
	default:
		return nil, p.fail("IS NULL after a property only")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	negated, err := p.accept("NOT")
	if err != nil {
		return nil, err
	}
	if !negated && !p.token.is("NULL") {
		return nil, p.fail("NULL or NOT NULL")
	}
	return &isNull{of: of, negated: negated}, p.expect("NULL")
}

// membership parses [NOT] IN, [NOT] LIKE and [NOT] BETWEEN, which only selectors have.
func (p *parser) membership(of term) (condition, error) {
	negated, err := p.accept("NOT")
	if err != nil {
		return nil, err
	}
	position := p.token.position
	if _, named := of.(*property); p.lexer.selector && !named && !p.token.is("BETWEEN") {
		return nil, p.fail("an identifier before IN or LIKE")
	}
	switch {
	case p.token.is("BETWEEN"):
		return p.between(of, negated)
	case p.token.is("IN"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		list, err := p.list(of)
		return &in{of: of, list: list, negated: negated}, err
	case p.token.is("LIKE"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		return p.like(&like{of: of, negated: negated, position: position})
	}
	if p.lexer.selector {
		return nil, p.fail("BETWEEN, IN or LIKE")
	}
	return nil, p.fail("IN or LIKE")
}

// element parses an element of a list, or a pattern or escape of LIKE: selectors allow strings only.
func (p *parser) element() (term, error) {
	switch {
	case !p.lexer.selector:
		return p.termHere(p.sum)
	case p.token.kind != tokenText:
		return nil, p.fail("a string between single quotes")
	}
	return p.termHere(p.primary)
}

// list parses the list of IN. of is the value that is looked for.
func (p *parser) list(of term) ([]term, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var list []term
	for {
		t, err := p.element()
		if err != nil {
			return nil, err
		}
		list = append(list, p.shownID(t, of))
		switch more, err := p.accept(","); {
		case err != nil:
			return nil, err
		case more:
		case !p.token.is(")"):
			return nil, p.fail(", or )")
		default:
			return list, p.advance()
		}
	}
}

func (p *parser) like(l *like) (_ condition, err error) {
	pattern := p.token
	if l.text, err = p.element(); err != nil {
		return nil, err
	}
	escape := p.token
	more, err := p.accept("ESCAPE")
	if err != nil {
		return nil, err
	}
	if more {
		escape = p.token
		if l.escape, err = p.element(); err != nil {
			return nil, err
		}
	}
	if p, ok := l.of.(*property); ok {
		l.name = &Property{Scope: p.Scope, Name: p.Name}
		if p.Scope == User {
			l.name.Name = p.folded
		}
	}
	return l, l.prepare(&pattern, &escape)
}

// prepare compiles the pattern if it does not depend on the message, and refuses one that could
// never be evaluated.
func (l *like) prepare(pattern, escape *token) error {
	if !isConstant(l.text) || l.escape != nil && !isConstant(l.escape) {
		return nil
	}
	r := Runner{budget: Unlimited}
	ready, ok, err := l.pattern(&r)
	if err != nil {
		return &SyntaxError{
			Position: escape.position, Expected: "an ESCAPE of one character that the pattern does not end in",
			Found: "the pattern " + pattern.describe() + " and " + escape.describe(),
		}
	}
	if ok {
		l.compiled = &ready
	}
	return nil
}

// isConstant reports whether a term is the same for all messages.
func isConstant(t term) bool {
	switch t.(type) {
	case constant, parameter:
		return true
	}
	return false
}
