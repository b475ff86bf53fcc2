package filter

import (
	"fmt"
	"strings"
)

// everything is the filter of an empty selector, which selects all messages.
const everything = "1=1"

// SelectorSQL translates a message selector of JMS (Jakarta Messaging 2.0, 3.8.1) to an SQL filter that [Parse] accepts.
// Selectors are a dialect of SQL filters. In the dialect,
//
//   - BETWEEN exists; !=, %, NULL as a value, EXISTS, functions, parameters, scopes and names in brackets do not,
//   - names may begin with _ and $, and have any characters between double quotes, as in Qpid JMS,
//   - JMSMessageID, JMSCorrelationID, JMSType and JMSXGroupID are system properties, and no other name begins with JMS,
//   - numbers are written as in Java,
//   - IS NULL, IN and LIKE stand behind a name only, with strings as elements and patterns.
//
// Operators, precedence and three-valued logic are those of the standard. These differences remain:
//
//   - The case of property names is ignored, and letters are those of SQL filters.
//   - A comparison of different types, such as a string with a number, is unknown and not false. The difference shows
//     below NOT only.
//   - Arithmetic with a string or a boolean fails, and the message does not match.
//   - An ordered comparison of strings compares code points; the standard allows only = and <> for strings.
//   - Of the header fields, JMSPriority, JMSTimestamp and JMSDeliveryMode cannot be used: filters do not see them.
//
// Errors are meant for the client: they say where the selector is wrong, or that it is too long or too deeply nested.
func SelectorSQL(selector string) (string, error) {
	if err := checkLength(selector); err != nil {
		return "", err
	}
	p := &parser{lexer: lexer{text: selector, position: 1, selector: true}}
	if err := p.advance(); err != nil {
		return "", err
	}
	if p.token.kind == tokenEnd {
		return everything, nil
	}
	e, err := p.whole()
	if err != nil {
		return "", err
	}
	text := e.String()
	if _, err := Parse(text, nil); err != nil {
		return "", fmt.Errorf("in the SQL filter that the selector becomes, %w", err)
	}
	return text, nil
}

// selectorProperty parses a name in a selector. The header fields are those of the AMQP mapping of JMS that filters see.
func (p *parser) selectorProperty() (term, error) {
	t := p.token
	var header string
	switch t.text {
	case "JMSMessageID":
		header = MessageID
	case "JMSCorrelationID":
		header = CorrelationID
	case "JMSType":
		header = Label
	case "JMSXGroupID":
		header = SessionID
	default:
		if strings.HasPrefix(t.text, "JMS") {
			return nil, p.fail("a property of the message, or one of JMSMessageID, JMSCorrelationID, JMSType and JMSXGroupID, which are the header fields that selectors see here,")
		}
		return newProperty(User, &t), p.advance()
	}
	t.text = header
	return newProperty(System, &t), p.advance()
}

// between parses what follows [NOT] BETWEEN. SQL filters have no such operator. The value cannot contain another one,
// so the result is at most twice as long as the selector.
func (p *parser) between(of term, negated bool) (condition, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	low, err := p.termHere(p.sum)
	if err == nil {
		err = p.expect("AND")
	}
	if err != nil {
		return nil, err
	}
	high, err := p.termHere(p.sum)
	both := &logic{of: []condition{newComparison(of, ">=", low), newComparison(of, "<=", high)}}
	if negated {
		return not{both}, err
	}
	return both, err
}

// shownID returns a string of a selector as filters compare it with an id: clients of JMS show an id that is not a string
// that begins with "ID:" with a prefix that tells its type (AMQP mapping of JMS, 3.2.1.1). A binary id stays as it is,
// and equals none. Other terms, and strings that stand beside other values, are returned unchanged.
func (p *parser) shownID(t, beside term) term {
	id, ok := beside.(*property)
	c, isConstant := t.(constant)
	if !p.lexer.selector || !ok || !isConstant || id.Scope != System || id.Name != MessageID && id.Name != CorrelationID {
		return t
	}
	shown := c.v.text
	for _, kind := range [...]string{"NO_PREFIX:", "STRING:", "ULONG:"} {
		if id, ok := strings.CutPrefix(shown, "ID:AMQP_"+kind); ok {
			return constant{Text(id)}
		}
	}
	if id, ok := strings.CutPrefix(shown, "ID:AMQP_UUID:"); ok {
		return constant{Text(Fold(id))}
	}
	return t
}
