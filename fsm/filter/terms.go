package filter

import (
	"strconv"
	"strings"
)

func (p *parser) sum() (operand, error) { return p.operators("+-", p.product) }

func (p *parser) product() (operand, error) { return p.operators("*/%", p.sign) }

// operators parses a [op b [op c …]], grouped from the left.
func (p *parser) operators(ops string, level func() (operand, error)) (operand, error) {
	left, err := level()
	if err != nil {
		return operand{}, err
	}
	for p.token.kind == tokenSign && strings.Contains(ops, p.token.text) {
		op := p.token
		a, err := left.asTerm()
		if err != nil {
			return operand{}, err
		}
		if err := p.advance(); err != nil {
			return operand{}, err
		}
		b, err := p.termHere(level)
		if err != nil {
			return operand{}, err
		}
		left.term = &arithmetic{a: a, b: b, op: op.text[0], position: op.position}
	}
	return left, nil
}

// sign parses signs. A minus before a number belongs to the number, so that the smallest integer
// can be written.
func (p *parser) sign() (operand, error) {
	start := p.token
	if !start.is("-") && !start.is("+") {
		return p.primary()
	}
	if err := p.enter(); err != nil {
		return operand{}, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return operand{}, err
	}
	minus := start.text == "-"
	if minus && p.token.kind == tokenInteger {
		v, err := p.integer("-")
		return operand{term: constant{v}, start: start}, err
	}
	of, err := p.termHere(p.sign)
	if err != nil {
		return operand{}, err
	}
	if c, ok := of.(constant); ok && c.v.number() {
		if minus {
			c.v = negative(c.v)
		}
		return operand{term: c, start: start}, nil
	}
	return operand{term: &sign{of: of, minus: minus, position: start.position}, start: start}, nil
}

func (p *parser) integer(sign string) (Value, error) {
	i, err := strconv.ParseInt(sign+p.token.text, 10, 64)
	if err != nil {
		return Value{}, p.fail("an integer of 64 bits")
	}
	return Int(i), p.advance()
}

func (p *parser) decimal() (Value, error) {
	f, err := strconv.ParseFloat(p.token.text, 64)
	if err != nil {
		return Value{}, p.fail("a decimal below 1.8E308")
	}
	return Double(f), p.advance()
}

// primary parses constants, parameters, properties, functions, EXISTS, and anything in parentheses.
func (p *parser) primary() (operand, error) {
	start := p.token
	var v Value
	var err error
	switch {
	case start.is("("):
		return p.parentheses()
	case start.is("EXISTS"):
		return p.exists()
	case start.kind == tokenName, start.kind == tokenDelimited:
		read := p.name
		if p.lexer.selector {
			read = p.selectorProperty
		}
		t, err := read()
		return operand{term: t, start: start}, err
	case start.kind == tokenParameter:
		v, err := p.parameter()
		return operand{term: parameter{name: start.text, v: v}, start: start}, err
	case start.kind == tokenInteger:
		v, err = p.integer("")
	case start.kind == tokenDecimal:
		v, err = p.decimal()
	case start.kind == tokenText:
		v, err = Text(start.text), p.advance()
	case start.is("TRUE"), start.is("FALSE"):
		v, err = Bool(start.text == "TRUE"), p.advance()
	case start.is("NULL") && !p.lexer.selector:
		err = p.advance()
	default:
		err = p.fail("a value, a property or a condition")
	}
	return operand{term: constant{v}, start: start}, err
}

func (p *parser) parentheses() (operand, error) {
	if err := p.enter(); err != nil {
		return operand{}, err
	}
	defer p.leave()
	start := p.token
	if err := p.advance(); err != nil {
		return operand{}, err
	}
	o, err := p.or()
	if err != nil {
		return operand{}, err
	}
	o.start = start
	if !p.token.is(")") {
		return operand{}, p.fail("an operator or )")
	}
	return o, p.advance()
}

func (p *parser) parameter() (Value, error) {
	name := Fold(p.token.text)
	for i := range p.parameters {
		if p.parameters[i].Name == name {
			return p.parameters[i].Value, p.advance()
		}
	}
	return Value{}, p.fail("a parameter that is given")
}

func (p *parser) exists() (operand, error) {
	start := p.token
	if err := p.advance(); err != nil {
		return operand{}, err
	}
	if err := p.expect("("); err != nil {
		return operand{}, err
	}
	of, err := p.property()
	if err != nil {
		return operand{}, err
	}
	return operand{condition: exists{of}, start: start}, p.expect(")")
}

// property parses [scope .] name.
func (p *parser) property() (*property, error) {
	of, err := p.anyProperty()
	if err == nil && p.unusable == nil {
		p.unusable = of.checkUsable()
	}
	return of, err
}

func (p *parser) anyProperty() (*property, error) {
	first := p.token
	if first.kind != tokenName && first.kind != tokenDelimited {
		return nil, p.fail("a property")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if !p.token.is(".") {
		return newProperty(User, &first), nil
	}
	scope, err := p.scope(&first)
	if err != nil {
		return nil, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	name := p.token
	if name.kind != tokenName && name.kind != tokenDelimited {
		return nil, p.fail("the name of a property")
	}
	return newProperty(scope, &name), p.advance()
}

func (p *parser) scope(t *token) (Scope, error) {
	if t.kind == tokenName {
		switch Fold(t.text) {
		case "sys":
			return System, nil
		case "user":
			return User, nil
		}
	}
	return User, &SyntaxError{Position: t.position, Expected: "the scope sys or user", Found: t.describe()}
}

func newProperty(scope Scope, name *token) *property {
	p := &property{Property: Property{Scope: scope, Name: name.text}, folded: Fold(name.text), position: name.position}
	if scope == System {
		p.system = findSystem(name.text)
		p.Name = p.system.name
	}
	return p
}

// name parses a property or a function: newid(), property(name), p(name).
func (p *parser) name() (term, error) {
	first := p.token
	of, err := p.property()
	if err != nil || !p.token.is("(") {
		return of, err
	}
	function := ""
	if first.kind == tokenName && of.position == first.position {
		function = Fold(first.text)
	}
	switch function {
	case "newid", "property", "p":
	default:
		return nil, &SyntaxError{Position: first.position, Expected: "newid, property or p before (", Found: first.describe()}
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return nil, err
	}
	if function == "newid" {
		p.ids++
		return newID{p.ids - 1}, p.expect(")")
	}
	name, err := p.termHere(p.sum)
	if err != nil {
		return nil, err
	}
	return &namedProperty{name: name, position: first.position}, p.expect(")")
}
