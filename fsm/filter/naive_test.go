package filter

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive is a second evaluator, written from the rules and not from the code: a tree of
// operators over plain Go values, looked at node by node. It renders itself with every
// parenthesis that one can write, so it depends on no precedence.
type naive struct {
	op   string
	kids []*naive
	lit  any // of "lit"; the name of "user" and "sys"
}

var errNaive = errors.New("evaluation fails")

func (n *naive) text() string {
	k := make([]string, len(n.kids))
	for i, kid := range n.kids {
		k[i] = "(" + kid.text() + ")"
	}
	switch n.op {
	case "lit":
		return literal(n.lit)
	case "user":
		return "[" + n.lit.(string) + "]"
	case "sys":
		return "sys." + n.lit.(string)
	case "not", "neg":
		return map[string]string{"not": "NOT ", "neg": "-"}[n.op] + k[0]
	case "null", "notnull":
		return n.kids[0].text() + map[string]string{"null": " IS NULL", "notnull": " IS NOT NULL"}[n.op]
	case "exists":
		return "EXISTS(" + n.kids[0].text() + ")"
	case "p":
		return "p" + k[0]
	case "in", "not in":
		return k[0] + " " + n.op + " (" + strings.Join(k[1:], ",") + ")"
	case "like", "not like":
		if len(k) == 3 {
			return k[0] + " " + n.op + " " + k[1] + " escape " + k[2]
		}
	}
	return k[0] + " " + n.op + " " + k[1]
}

func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	return "'" + strings.ReplaceAll(v.(string), "'", "''") + "'"
}

// eval gives nil for NULL and unknown.
func (n *naive) eval(m map[string]any) (any, error) {
	switch n.op {
	case "lit":
		return n.lit, nil
	case "user":
		return m[n.lit.(string)], nil
	case "sys":
		v, known := m["sys."+n.lit.(string)]
		if !known {
			return nil, errNaive
		}
		return v, nil
	case "and", "or":
		return n.evalLogic(m)
	case "exists":
		v, found := m[n.kids[0].lit.(string)]
		if n.kids[0].op == "sys" {
			v, err := n.kids[0].eval(m)
			return v != nil, err
		}
		_ = v
		return found, nil
	}
	first, err := n.kids[0].eval(m)
	if err != nil {
		return nil, err
	}
	switch n.op {
	case "null":
		return first == nil, nil
	case "notnull":
		return first != nil, nil
	case "not":
		if b, ok := first.(bool); ok {
			return !b, nil
		}
		return nil, nil
	case "neg":
		return naiveArithmetic("-", int64(0), first, true)
	case "p":
		if s, ok := first.(string); ok {
			return m[s], nil
		}
		if first == nil {
			return nil, nil
		}
		return nil, errNaive
	case "in", "not in":
		return n.evalIn(m, first)
	}
	rest := []any{}
	for _, kid := range n.kids[1:] {
		v, err := kid.eval(m)
		if err != nil {
			return nil, err
		}
		rest = append(rest, v)
	}
	switch n.op {
	case "+", "-", "*", "/", "%":
		return naiveArithmetic(n.op, first, rest[0], false)
	case "like", "not like":
		return naiveLike(first, rest, n.op == "not like")
	}
	return naiveCompare(n.op, first, rest[0]), nil
}

// evalLogic is AND and OR by De Morgan over AND alone.
func (n *naive) evalLogic(m map[string]any) (any, error) {
	end := n.op == "or"
	a, err := n.kids[0].eval(m)
	if err != nil {
		return nil, err
	}
	if a, ok := a.(bool); ok && a == end {
		return end, nil
	}
	b, err := n.kids[1].eval(m)
	if err != nil {
		return nil, err
	}
	aBool, aKnown := a.(bool)
	bBool, bKnown := b.(bool)
	switch {
	case bKnown && bBool == end:
		return end, nil
	case !aKnown || !bKnown:
		return nil, nil
	}
	return map[bool]bool{false: aBool && bBool, true: aBool || bBool}[end], nil
}

// evalIn is x = a OR x = b OR …, and for NOT IN the opposite.
func (n *naive) evalIn(m map[string]any, first any) (any, error) {
	if first == nil {
		return nil, nil
	}
	unknown := false
	for _, kid := range n.kids[1:] {
		v, err := kid.eval(m)
		if err != nil {
			return nil, err
		}
		switch naiveCompare("=", first, v) {
		case true:
			return n.op == "in", nil
		case nil:
			unknown = true
		}
	}
	if unknown {
		return nil, nil
	}
	return n.op == "not in", nil
}

func naiveNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func naiveCompare(op string, a, b any) any {
	answer := func(less, equal, ordered bool) any {
		switch op {
		case "=":
			return equal
		case "<>", "!=":
			return !equal
		}
		if !ordered {
			return nil
		}
		return map[string]bool{"<": less, "<=": less || equal, ">": !less && !equal, ">=": !less}[op]
	}
	if x, ok := a.(int64); ok {
		if y, ok := b.(int64); ok {
			return answer(x < y, x == y, true)
		}
	}
	x, xNumber := naiveNumber(a)
	y, yNumber := naiveNumber(b)
	switch {
	case xNumber && yNumber && (math.IsNaN(x) || math.IsNaN(y)):
		return op == "<>" || op == "!="
	case xNumber && yNumber:
		return answer(x < y, x == y, true)
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return answer(x < y, x == y, true)
		}
	case bool:
		if y, ok := b.(bool); ok {
			return answer(false, x == y, false)
		}
	}
	return nil
}

func naiveArithmetic(op string, a, b any, negate bool) (any, error) {
	if a == nil || b == nil {
		return nil, nil
	}
	x, xInt := a.(int64)
	y, yInt := b.(int64)
	if xInt && yInt {
		return naiveIntegers(op, x, y)
	}
	f, xNumber := naiveNumber(a)
	g, yNumber := naiveNumber(b)
	if xNumber && yNumber {
		if negate {
			return -g, nil
		}
		return map[string]func() float64{
			"+": func() float64 { return f + g }, "-": func() float64 { return f - g }, "*": func() float64 { return f * g },
			"/": func() float64 { return f / g }, "%": func() float64 { return math.Mod(f, g) },
		}[op](), nil
	}
	_, xText := a.(string)
	_, yText := b.(string)
	if op != "+" || negate || !xText && !yText {
		return nil, errNaive
	}
	return naiveShow(a) + naiveShow(b), nil
}

// naiveIntegers computes exactly and cuts to 64 bits afterwards.
func naiveIntegers(op string, x, y int64) (any, error) {
	a, b, r := big.NewInt(x), big.NewInt(y), new(big.Int)
	switch op {
	case "+":
		r.Add(a, b)
	case "-":
		r.Sub(a, b)
	case "*":
		r.Mul(a, b)
	default:
		if y == 0 || !r.Quo(a, b).IsInt64() {
			return nil, errNaive
		}
		if op == "%" {
			r.Rem(a, b)
		}
	}
	mask := new(big.Int).SetUint64(math.MaxUint64)
	return int64(r.And(r, mask).Uint64()), nil
}

func naiveShow(v any) string {
	switch v := v.(type) {
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case float64:
		return formatDouble(v) // the one thing both share; the table has its own cases
	}
	return fmt.Sprint(v)
}

// naiveLike goes by way of a regular expression.
func naiveLike(first any, rest []any, negated bool) (any, error) {
	text, ok := rest[0].(string)
	escape := ""
	if len(rest) == 2 {
		e, isText := rest[1].(string)
		if isText && len([]rune(e)) != 1 && (ok || e == "") {
			return nil, errNaive
		}
		ok = ok && isText
		escape = e
	}
	if !ok {
		return nil, nil
	}
	expression, valid := likeExpression(text, escape)
	if !valid {
		return nil, errNaive
	}
	s, isText := first.(string)
	if !isText {
		return nil, nil
	}
	return expression.MatchString(s) != negated, nil
}

func likeExpression(text, escape string) (*regexp.Regexp, bool) {
	var b strings.Builder
	escaped := false
	for _, r := range text {
		switch c := string(r); {
		case escaped:
			b.WriteString(regexp.QuoteMeta(c))
			escaped = false
		case c == escape:
			escaped = true
		case c == "%":
			b.WriteString(".*")
		case c == "_":
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(c))
		}
	}
	if escaped {
		return nil, false
	}
	return regexp.MustCompile(`(?s)\A` + b.String() + `\z`), true
}

// The generators. Values collide often, so that equality is not rare.
func node(op string, kids ...*naive) *naive { return &naive{op: op, kids: kids} }

func drawValue(t *rapid.T) any {
	return rapid.SampledFrom([]any{
		nil, true, false, int64(0), int64(1), int64(2), int64(-3), int64(math.MaxInt64), int64(math.MinInt64),
		0.5, 1.0, -2.25, 1e300, "", "a", "ab", "a%", "A", "it's", "u1", "ß",
	}).Draw(t, "value")
}

func drawProperty(t *rapid.T) *naive {
	if rapid.IntRange(0, 5).Draw(t, "scope") == 0 {
		return &naive{op: "sys", lit: rapid.SampledFrom([]string{"Label", "To", "Nonsense"}).Draw(t, "system")}
	}
	return &naive{op: "user", lit: rapid.SampledFrom([]string{"u1", "u2", "u3", "u4"}).Draw(t, "user")}
}

func drawTerm(t *rapid.T, depth int) *naive {
	choice := rapid.IntRange(0, 7).Draw(t, "term")
	if depth <= 0 {
		choice %= 4
	}
	switch choice {
	case 0, 1:
		v := drawValue(t)
		return &naive{op: "lit", lit: v}
	case 2, 3:
		return drawProperty(t)
	case 4:
		return node("neg", drawTerm(t, depth-1))
	case 5:
		return node("p", drawTerm(t, depth-1))
	}
	op := rapid.SampledFrom([]string{"+", "-", "*", "/", "%"}).Draw(t, "operator")
	return node(op, drawTerm(t, depth-1), drawTerm(t, depth-1))
}

func drawPattern(t *rapid.T) *naive {
	if rapid.IntRange(0, 3).Draw(t, "pattern") == 0 {
		return drawTerm(t, 1)
	}
	return &naive{op: "lit", lit: rapid.StringMatching(`[aAb%_!ß]{0,6}`).Draw(t, "text")}
}

func drawCondition(t *rapid.T, depth int) *naive {
	choice := rapid.IntRange(0, 11).Draw(t, "condition")
	if depth <= 0 {
		choice = choice%6 + 6
	}
	switch choice {
	case 0, 1:
		return node("and", drawCondition(t, depth-1), drawCondition(t, depth-1))
	case 2, 3:
		return node("or", drawCondition(t, depth-1), drawCondition(t, depth-1))
	case 4, 5:
		return node("not", drawCondition(t, depth-1))
	case 6:
		return node(rapid.SampledFrom([]string{"null", "notnull", "exists"}).Draw(t, "unary"), drawProperty(t))
	case 7:
		kids := []*naive{drawTerm(t, depth)}
		for range rapid.IntRange(1, 4).Draw(t, "list") {
			kids = append(kids, drawTerm(t, 0))
		}
		return node(rapid.SampledFrom([]string{"in", "not in"}).Draw(t, "in"), kids...)
	case 8:
		kids := []*naive{drawTerm(t, depth), drawPattern(t)}
		if rapid.Bool().Draw(t, "escaped") {
			kids = append(kids, &naive{op: "lit", lit: rapid.SampledFrom([]any{"!", "a", "%", "ß", "", "ab", nil, int64(1)}).Draw(t, "escape")})
		}
		return node(rapid.SampledFrom([]string{"like", "not like"}).Draw(t, "like"), kids...)
	case 9:
		return drawProperty(t)
	}
	op := rapid.SampledFrom([]string{"=", "<>", "!=", "<", "<=", ">", ">="}).Draw(t, "comparison")
	return node(op, drawTerm(t, depth), drawTerm(t, depth))
}

func asValue(v any) Value {
	switch v := v.(type) {
	case bool:
		return Bool(v)
	case int64:
		return Int(v)
	case float64:
		return Double(v)
	case string:
		return Text(v)
	}
	return Value{}
}

// Both evaluators agree on every expression and message; so does the filter that was
// printed and parsed again.
func TestAgreesWithTheNaiveEvaluator(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		message := map[string]any{"sys.Label": "a", "sys.To": nil}
		m := &fake{system: map[string]Value{Label: Text("a"), To: {}}, user: map[string]Value{}}
		for _, name := range []string{"u1", "u2", "u3"} { // u4 is never there
			if rapid.Bool().Draw(t, "has "+name) {
				v := drawValue(t)
				message[name], m.user[name] = v, asValue(v)
			}
		}
		tree := drawCondition(t, 4)
		text := tree.text()
		e, err := parse(text, nil)
		if err != nil {
			if strings.Contains(err.Error(), "ESCAPE") {
				t.Skip("refused when parsed instead of failing when evaluated")
			}
			t.Fatalf("%s: %v", text, err)
		}
		want, wantErr := tree.eval(message)
		for _, e := range []*Expr{e, reparsed(t, e)} {
			got, err := e.Match(m)
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%s: got %v, want %v", text, err, wantErr)
			}
			b, known := want.(bool)
			if err == nil && (got == Unknown) == known || err == nil && known && got != truth(b) {
				t.Fatalf("%s\nprinted %s\ngot %v, want %v", text, e, got, want)
			}
		}
	})
}

func reparsed(t *rapid.T, e *Expr) *Expr {
	again, err := parse(e.String(), nil)
	if err != nil {
		t.Fatalf("printed as %s: %v", e, err)
	}
	if again.String() != e.String() {
		t.Fatalf("printed as %s, then as %s", e, again)
	}
	return again
}
