package filter

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

// row is one line of testdata/filters.txt.
type row struct {
	line       int
	want, text string
}

func rows(tb testing.TB) []row {
	tb.Helper()
	f, err := os.Open("testdata/filters.txt")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var all []row
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		want, text, _ := strings.Cut(lines.Text(), " ")
		if want == "" || want == "#" || strings.HasPrefix(want, "#") {
			continue
		}
		if !strings.HasPrefix(want, "syntax") { // leading spaces are part of what is refused
			text = strings.TrimLeft(text, " ")
		}
		all = append(all, row{n, want, text})
	}
	if err := lines.Err(); err != nil || len(all) < 400 {
		tb.Fatalf("only %d rows, %v", len(all), err)
	}
	return all
}

func reasons() map[string]error {
	return map[string]error{
		"error:property": ErrUnknownProperty, "error:operand": ErrOperand, "error:division": ErrDivision,
		"error:escape": ErrEscape,
	}
}

// answer says in the words of the table what happens to a text.
func answer(e *Expr, err error, m Message) string {
	var syntax *SyntaxError
	if errors.As(err, &syntax) {
		return "syntax@" + strconv.Itoa(syntax.Position)
	}
	if err != nil {
		return err.Error()
	}
	t, err := e.Match(m)
	if err == nil {
		return t.String()
	}
	for word, reason := range reasons() {
		if errors.Is(err, reason) {
			return word
		}
	}
	return err.Error()
}

func TestFilterTable(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t) {
		e, err := Parse(r.text, parameters())
		if got := answer(e, err, sample()); got != r.want {
			t.Errorf("line %d: %s\n got %s (%v)\nwant %s", r.line, r.text, got, err, r.want)
		}
		if err != nil {
			continue
		}
		printed := e.String()
		again, err := Parse(printed, parameters())
		if err != nil {
			t.Errorf("line %d: printed as %s: %v", r.line, printed, err)
			continue
		}
		if got := answer(again, nil, sample()); got != r.want {
			t.Errorf("line %d: printed as %s: got %s, want %s", r.line, printed, got, r.want)
		}
		if twice := again.String(); twice != printed {
			t.Errorf("line %d: printed as %s, then as %s", r.line, printed, twice)
		}
	}
}

func TestSyntaxErrorsTellWhatWasExpected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                         `character 1: expected a value, a property or a condition, found the end`,
		"color = 'red' AND":        `character 18: expected a value, a property or a condition, found the end`,
		"color = 'red' size = 1":   `character 15: expected an operator or the end, found "size"`,
		"größe == 5":               `character 8: expected a value, a property or a condition, found "="`,
		"color = 'red":             `character 13: expected a closing ', found the end`,
		"(color = 'red'":           `character 15: expected an operator or ), found the end`,
		"1 AND 1=1":                `character 1: expected a condition, found the value that begins with "1"`,
		"1 = (2 = 2)":              `character 5: expected a value, found the condition that begins with "("`,
		"size BETWEEN 1 AND 2":     `character 6: expected an operator or the end, found "BETWEEN"`,
		"other.x = 1":              `character 1: expected the scope sys or user, found "other"`,
		"color IN ('a' 'b')":       `character 15: expected , or ), found "'b'"`,
		"color IS empty":           `character 10: expected NULL or NOT NULL, found "empty"`,
		"@who = 1":                 `character 1: expected a parameter that is given, found "@who"`,
		"lower(x) = 1":             `character 1: expected newid, property or p before (, found "lower"`,
		"x = 99999999999999999999": `character 5: expected an integer of 64 bits, found "99999999999999999999"`,
		"x = 1a":                   `character 6: expected the end of the number, found "a"`,
		"x = 'a\xff'":              `character 7: expected UTF-8, found "\xff"`,
		"x = \x00":                 `character 5: expected a name, a value or an operator, found "\x00"`,
		"EXISTS(1)":                `character 8: expected a property, found "1"`,
		"x LIKE 'a!' ESCAPE '!'":   `character 20: expected an ESCAPE of one character that the pattern does not end in, found the pattern "'a!'" and "'!'"`,
		"a 'of a text that goes on and on and on and on'": `character 3: expected an operator or the end, found "'of a text that goes on and on a…"`,
	} {
		_, err := Parse(text, nil)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestEvaluationErrorsTellNoValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 = 1 AND sys.Nonsense = 1": `character 15: no such system property: sys.Nonsense`,
		"color * 2 = 1":              `character 7: wrong type of operand: * between a string and an integer`,
		"-flag = 1":                  `character 1: wrong type of operand: a sign before a boolean`,
		"Size / 0 = 1":               `character 6: division by zero or overflow: between integers`,
		"color LIKE 'a' ESCAPE code": `character 7: wrong escape character: in LIKE`,
		"p(price) = 1":               `character 1: wrong type of operand: a name is a string, not a decimal`,
	} {
		e, err := Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Match(sample()); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestPrintedFormParsesAgain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"((a=1))and((b!=2)or(c<3))":              "a = 1 AND (b <> 2 OR c < 3)",
		"(a=1 and b=2) or c=3":                   "a = 1 AND b = 2 OR c = 3",
		"(a=1 or b=2) or c=3":                    "(a = 1 OR b = 2) OR c = 3",
		"not(not(a=1 and b))":                    "NOT NOT (a = 1 AND b)",
		"a-(b-c)=(a*b)+c":                        "a - (b - c) = a * b + c",
		"a*(b+c)=-(a+b)":                         "a * (b + c) = -(a + b)",
		"user.a=sys.label":                       "a = sys.Label",
		"[two words]=\"in\"":                     "[two words] = [in]",
		"a not in(1,-2,- 3.0,1e400-1) or a=1":    "", // does not parse
		"a not in(1,-2,- 3.0)":                   "a NOT IN (1, -2, -3.0)",
		"a like 'it''s' escape'\\'":              `a LIKE 'it''s' ESCAPE '\'`,
		"exists([a])and[set]is not null":         "EXISTS(a) AND [set] IS NOT NULL",
		"p('x')=newid()":                         "property('x') = newid()",
		"a=@S and true and 1e21=.5 and a = 1E-7": "a = @S AND TRUE AND 1E+21 = 0.5 AND a = 1E-07",
	} {
		e, err := Parse(text, parameters())
		if want == "" {
			if err == nil {
				t.Errorf("%s: parsed", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := e.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestNewIDIsAFunctionOfTheMessage(t *testing.T) {
	t.Parallel()
	e, err := Parse("newid() = newid() OR newid() = @first", []Parameter{{"first", ID(DeriveID(42, 7, 2))}})
	if err != nil {
		t.Fatal(err)
	}
	m := sample()
	if got, err := e.Match(m); got != True || err != nil || m.ids != 3 {
		t.Errorf("got %v, %v, %d ids asked for", got, err, m.ids)
	}
	seen := map[GUID]bool{}
	for a := range uint64(20) {
		for b := range uint64(20) {
			for call := range 3 {
				g := DeriveID(a, b, call)
				if g[6]>>4 != 8 || g[8]>>6 != 2 {
					t.Errorf("%v is no version 8 UUID", g)
				}
				seen[g] = true
			}
		}
	}
	if len(seen) != 20*20*3 {
		t.Errorf("%d different ids of %d", len(seen), 20*20*3)
	}
	if got := DeriveID(1, 2, 3).String(); got != "ac7ae836-6a0d-8b29-893d-0e413390c8e5" {
		t.Errorf("DeriveID(1, 2, 3) = %s: ids changed, replicas of two releases would differ", got)
	}
}
