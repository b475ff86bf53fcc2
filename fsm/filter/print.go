package filter

import (
	"strconv"
	"strings"
)

// The levels of precedence, lowest first. An operand of a lower level than required is printed in
// parentheses.
const (
	levelOr = iota
	levelAnd
	levelNot
	levelPredicate
	levelSum
	levelProduct
	levelSign
)

// printer prints nodes.
type printer struct{ strings.Builder }

// String returns the filter in one canonical form: words in capitals, one space around operators,
// no unnecessary parentheses. Parsed again with the same parameters it gives an equal filter with
// the same String; it can be longer than the original text, and so longer than TextCharactersMax.
func (e *Expr) String() string {
	var p printer
	e.root.print(&p)
	return p.String()
}

func (p *printer) write(parts ...string) {
	for _, s := range parts {
		p.WriteString(s)
	}
}

// term prints t, in parentheses if it is below the level.
func (p *printer) term(t term, level int) {
	own := levelSign
	if a, ok := t.(*arithmetic); ok {
		own = precedenceOf(a.op)
	}
	p.parenthesized(own < level, t.print)
}

func precedenceOf(op byte) int {
	if op == '+' || op == '-' {
		return levelSum
	}
	return levelProduct
}

// condition prints c, in parentheses if it is below the level.
func (p *printer) condition(c condition, level int) {
	own := levelPredicate
	switch c := c.(type) {
	case *logic:
		own = c.level()
	case not:
		own = levelNot
	}
	p.parenthesized(own < level, c.print)
}

func (p *printer) parenthesized(parentheses bool, print func(*printer)) {
	if !parentheses {
		print(p)
		return
	}
	p.write("(")
	print(p)
	p.write(")")
}

// quote doubles the closing character inside.
func quote(opening, text, closing string) string {
	return opening + strings.ReplaceAll(text, closing, closing+closing) + closing
}

func (c constant) print(p *printer) {
	switch c.v.kind {
	case KindBool:
		p.write(strings.ToUpper(c.v.String()))
	case KindText:
		p.write(quote("'", c.v.text, "'"))
	case KindDouble:
		s := strconv.FormatFloat(c.v.AsDouble(), 'G', -1, 64)
		if !strings.ContainsAny(s, ".E") {
			s += ".0"
		}
		p.write(s)
	case KindNull, KindInt, KindTime, KindSpan, KindGUID, KindBinary: // the last four have no literals
		p.write(c.v.String())
	}
}

func (t parameter) print(p *printer) { p.write("@", t.name) }

func (t *property) print(p *printer) { p.write(t.String()) }

// String returns the property as written in a filter.
func (p Property) String() string {
	name := p.Name
	if !isPlainName(name) || reservedWord(name) != "" {
		name = quote("[", name, "]")
	}
	if p.Scope == System {
		return "sys." + name
	}
	return name
}

func (n *namedProperty) print(p *printer) {
	p.write("property(")
	n.name.print(p)
	p.write(")")
}

func (newID) print(p *printer) { p.write("newid()") }

func (s *sign) print(p *printer) {
	if s.minus {
		p.write("-")
	} else {
		p.write("+")
	}
	p.term(s.of, levelSign)
}

func (a *arithmetic) print(p *printer) {
	level := precedenceOf(a.op)
	p.term(a.a, level)
	p.write(" ", string(rune(a.op)), " ")
	p.term(a.b, level+1)
}

func (t termTruth) print(p *printer) { t.of.print(p) }

func (l *logic) level() int {
	if l.or {
		return levelOr
	}
	return levelAnd
}

func (l *logic) print(p *printer) {
	word := " AND "
	if l.or {
		word = " OR "
	}
	for i, c := range l.of {
		if i > 0 {
			p.write(word)
		}
		p.condition(c, l.level()+1)
	}
}

func (n not) print(p *printer) {
	p.write("NOT ")
	p.condition(n.of, levelNot)
}

func (c *comparison) print(p *printer) {
	p.term(c.a, levelSum)
	p.write(" ", c.op, " ")
	p.term(c.b, levelSum)
}

func (n *isNull) print(p *printer) {
	n.of.print(p)
	p.write(" IS ")
	p.negation(n.negated)
	p.write("NULL")
}

func (p *printer) negation(negated bool) {
	if negated {
		p.write("NOT ")
	}
}

func (e exists) print(p *printer) {
	p.write("EXISTS(")
	e.of.print(p)
	p.write(")")
}

func (i *in) print(p *printer) {
	p.term(i.of, levelSum)
	p.write(" ")
	p.negation(i.negated)
	p.write("IN (")
	for n, t := range i.list {
		if n > 0 {
			p.write(", ")
		}
		p.term(t, levelSum)
	}
	p.write(")")
}

func (l *like) print(p *printer) {
	p.term(l.of, levelSum)
	p.write(" ")
	p.negation(l.negated)
	p.write("LIKE ")
	p.term(l.text, levelSum)
	if l.escape != nil {
		p.write(" ESCAPE ")
		p.term(l.escape, levelSum)
	}
}
