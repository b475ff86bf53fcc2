package arm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of the expressions of a template. A template is written by people or by Bicep, and a loop may not make it endless.
const (
	expressionBytesMax = 24576   // of one expression, as in Azure
	depthMax           = 100     // nested calls, and variables that refer to each other
	stepsMax           = 1 << 20 // values that are evaluated
	copiesMax          = 10_000  // of one loop
)

// mark begins and ends an unknown part of a text.
const mark = "\x00"

// unknown returns the value of an expression that only a deployment knows.
func unknown(expression string) string { return mark + expression + mark }

// isUnknown reports whether a value is a text with an unknown part.
func isUnknown(value any) bool {
	text, ok := value.(string)
	return ok && strings.Contains(text, mark)
}

// unknownError returns the error for a text with an unknown part that is needed.
func unknownError(text string) error {
	_, rest, _ := strings.Cut(text, mark)
	expression, _, _ := strings.Cut(rest, mark)
	if name, is := strings.CutPrefix(expression, "parameters('"); is {
		return fmt.Errorf("the parameter %s has no value: give --parameter %[1]s=VALUE", strings.TrimSuffix(name, "')"))
	}
	return fmt.Errorf("[%s] is known only to a deployment in Azure: write the value instead, or make it a parameter", expression)
}

// call is one of the kinds of nodes of an expression; the others are literals: a string or an int64.
type call struct {
	text      string // as it is written, for errors
	function  string
	arguments []any
}

// access is a property or an element of a value.
type access struct {
	text    string
	of, key any
}

// parser reads one expression, the text between [ and ].
type parser struct {
	text string
	at   int
}

// parse returns the tree of an expression.
func parse(text string) (any, error) {
	if len(text) > expressionBytesMax {
		return nil, fmt.Errorf("the expression [%.60s...] is longer than %d bytes", text, expressionBytesMax)
	}
	p := &parser{text: text}
	tree, err := p.expression(0)
	if err == nil {
		if p.space(); p.at < len(p.text) {
			err = fmt.Errorf("there is more after the end: %.40q", p.text[p.at:])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the expression [%s]: %w", text, err)
	}
	return tree, nil
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.ContainsRune(" \t\r\n", rune(p.text[p.at])) {
		p.at++
	}
}

// accept skips a character if it is the next one.
func (p *parser) accept(c byte) bool {
	if p.space(); p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) expression(depth int) (any, error) {
	if depth > depthMax {
		return nil, fmt.Errorf("it is nested more than %d times", depthMax)
	}
	p.space()
	begin := p.at
	var tree any
	var err error
	switch {
	case p.accept('\''):
		tree, err = p.literal()
	case p.at < len(p.text) && (p.text[p.at] == '-' || isDigit(p.text[p.at])):
		tree, err = strconv.ParseInt(p.word(func(c byte) bool { return c == '-' || isDigit(c) }), 10, 64)
	default:
		tree, err = p.call(begin, depth)
	}
	for err == nil {
		switch {
		case p.accept('.'):
			p.space()
			tree = access{of: tree, key: p.word(isName)}
		case p.accept('['):
			var key any
			if key, err = p.expression(depth + 1); err == nil && !p.accept(']') {
				err = fmt.Errorf("a ] is missing after %.40q", p.text[begin:p.at])
			}
			tree = access{of: tree, key: key}
		default:
			return tree, nil
		}
		if a, ok := tree.(access); ok {
			a.text = strings.TrimSpace(p.text[begin:p.at])
			tree = a
		}
	}
	return nil, err
}

func (p *parser) call(begin, depth int) (any, error) {
	c := call{function: p.word(isName)}
	if c.function == "" || !p.accept('(') {
		return nil, fmt.Errorf("a function with its arguments in parentheses is missing at %.40q", p.text[begin:])
	}
	for more := !p.accept(')'); more; {
		argument, err := p.expression(depth + 1)
		if err != nil {
			return nil, err
		}
		c.arguments = append(c.arguments, argument)
		if more = p.accept(','); !more && !p.accept(')') {
			return nil, fmt.Errorf("a ) is missing after %.40q", p.text[begin:p.at])
		}
	}
	c.text = p.text[begin:p.at]
	return c, nil
}

// literal reads the rest of a text in quotes; two quotes in it are one.
func (p *parser) literal() (string, error) {
	var text strings.Builder
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		if c == '\'' {
			if p.at == len(p.text) || p.text[p.at] != '\'' {
				return text.String(), nil
			}
			p.at++
		}
		text.WriteByte(c)
	}
	return "", errors.New("a text in quotes does not end")
}

func (p *parser) word(has func(byte) bool) string {
	begin := p.at
	for p.at < len(p.text) && has(p.text[p.at]) {
		p.at++
	}
	return p.text[begin:p.at]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '_' || c == '-' || c == '$' || c == '#'
}
