package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTextLimitCountsCharacters(t *testing.T) {
	t.Parallel()
	fill := func(n int, letter string) string { // a filter of n characters
		return "x = '" + strings.Repeat(letter, n-6) + "'"
	}
	for _, letter := range []string{"a", "ß", "😀"} {
		if _, err := Parse(fill(TextCharactersMax, letter), nil); err != nil {
			t.Errorf("%s: %v", letter, err)
		}
		_, err := Parse(fill(TextCharactersMax+1, letter), nil)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Position != TextCharactersMax+1 {
			t.Errorf("%s: one more: %v", letter, err)
		}
		if _, err := ParseAction("SET "+fill(TextCharactersMax-4, letter), nil); err != nil {
			t.Errorf("%s: %v", letter, err)
		}
		if _, err := ParseAction("SET "+fill(TextCharactersMax-3, letter), nil); !errors.As(err, &syntax) {
			t.Errorf("%s: action, one more: %v", letter, err)
		}
	}
}

func TestDepthLimit(t *testing.T) {
	t.Parallel()
	for name, nest := range map[string]func(n int) string{
		"parentheses": func(n int) string { return strings.Repeat("(", n) + "1=1" + strings.Repeat(")", n) },
		"not":         func(n int) string { return strings.Repeat("NOT ", n) + "1=1" },
		"minus":       func(n int) string { return strings.Repeat("-", n) + "x=1" },
		"plus":        func(n int) string { return strings.Repeat("+", n) + "x=1" },
		"functions":   func(n int) string { return strings.Repeat("p(", n) + "x" + strings.Repeat(")", n) + "=1" },
	} {
		e, err := parse(nest(DepthMax), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := parse(e.String(), nil); err != nil {
			t.Errorf("%s, printed: %v", name, err)
		}
		if _, err := parse(nest(DepthMax+1), nil); err == nil || !strings.Contains(err.Error(), "levels of nesting") {
			t.Errorf("%s, one more: %v", name, err)
		}
	}
	// Beside each other is not in each other.
	if _, err := parse("x IN ("+strings.Repeat("(1),", 2*DepthMax)+"-1)", nil); err != nil {
		t.Error(err)
	}
}

func TestStatementsLimit(t *testing.T) {
	t.Parallel()
	if _, err := ParseAction(strings.Repeat("REMOVE x;", StatementsMax), nil); err != nil {
		t.Error(err)
	}
	_, err := ParseAction(strings.Repeat("SET x=1;", StatementsMax+1), nil)
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Position != len("SET x=1;")*StatementsMax+1 {
		t.Errorf("one more: %v", err)
	}
}

func TestParameterLimits(t *testing.T) {
	t.Parallel()
	var many []Parameter
	for i := range ParametersMax {
		many = append(many, Parameter{Name: fmt.Sprintf("p%d", i), Value: Int(int64(i))})
	}
	e, err := Parse("@p0 = 0 AND @p127 = 127", many)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Match(sample()); got != True || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	fits := Text(strings.Repeat("a", ParameterBytesMax-1))
	for name, wrong := range map[string][]Parameter{
		"one more":       append(many, Parameter{Name: "q"}),
		"twice":          {{"a", Int(1)}, {"b", Int(1)}, {"@A", Int(1)}},
		"one byte more":  {{"ab", fits}},
		"long name only": {{strings.Repeat("a", ParameterBytesMax+1), Int(1)}},
	} {
		if _, err := Parse("1=1", wrong); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ParseAction("REMOVE x", wrong); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s, action: %v", name, err)
		}
	}
	if _, err := Parse("@a = 1", []Parameter{{"a", fits}}); err != nil {
		t.Error(err)
	}
}

func TestComputedStringsAreBounded(t *testing.T) {
	t.Parallel()
	m := sample()
	m.user["half"] = Text(strings.Repeat("a", ComputedBytesMax/2))
	for text, want := range map[string]error{
		"half + half LIKE '%'":          nil,
		"half + half + 'a' LIKE '%'":    ErrTooLong,
		"half + half + half LIKE '%'":   ErrTooLong,
		"half + half + '' LIKE '%'":     nil,
		"1 = 1 OR half + half + 1 = ''": nil,
	} {
		e, err := Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Match(m); !errors.Is(err, want) || err == nil && got != True {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

func TestCorrelationLimits(t *testing.T) {
	t.Parallel()
	var many []Condition
	for i := range ConditionsMax + 1 {
		many = append(many, Condition{Property{Name: fmt.Sprintf("p%d", i)}, Int(1)})
	}
	name := func(n int) []Condition { return []Condition{{Property{Name: strings.Repeat("n", n)}, Int(1)}} }
	value := func(n int) []Condition {
		return []Condition{{Property{Name: "ab"}, Int(1)}, {Property{Name: "c"}, Text(strings.Repeat("v", n-3))}}
	}
	for what, c := range map[string]struct{ fits, over []Condition }{
		"conditions": {many[1:], many},
		"name":       {name(NameBytesMax), name(NameBytesMax + 1)},
		"empty name": {name(1), name(0)},
		"bytes":      {value(CorrelationBytesMax), value(CorrelationBytesMax + 1)},
	} {
		if _, err := NewCorrelation(c.fits); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := NewCorrelation(c.over); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s, over: %v", what, err)
		}
	}
}
