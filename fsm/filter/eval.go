package filter

import (
	"fmt"
	"math"
)

// Truth is a truth value. A rule matches a message only if its filter is True.
type Truth uint8

// The three truth values of SQL.
const (
	False   Truth = 0
	Unknown Truth = 1
	True    Truth = 2
)

// String returns the name.
func (t Truth) String() string {
	switch t {
	case False:
		return "false"
	case Unknown:
		return "unknown"
	case True:
		return "true"
	}
	return fmt.Sprintf("truth %d", uint8(t))
}

func truth(b bool) Truth {
	if b {
		return True
	}
	return False
}

// Not returns the negation; that of Unknown is Unknown.
func (t Truth) Not() Truth { return True - t }

// Message gives a filter access to a message. Its results must not change during a Match.
type Message interface {
	// System returns a system property by its canonical name (see ContentType and the following
	// constants); NULL if this message has none. Filters that use another name fail without asking.
	System(name string) Value
	// User returns an application property. The name is folded (see Fold); the message compares it
	// with the folds of its names.
	User(folded string) (v Value, found bool)
	// NewID returns the value of the call-th newid() of a text, from 0 on. It must be a function of
	// the message and the rule, the same on all replicas; see DeriveID.
	NewID(call int) GUID
}

// DeriveID returns an id derived from two numbers that are unique together, such as the sequence
// number of a message and the number of a rule, and from the number of the call. It is a version 8
// UUID (RFC 9562): unique, but predictable if the numbers are known.
func DeriveID(a, b uint64, call int) GUID {
	var g GUID
	state := a
	for _, mix := range [...]uint64{b, uint64(call), 0} {
		state = mixBits(state + 0x9E3779B97F4A7C15 + mix)
	}
	first, second := state, mixBits(state^a)+b
	for i := range 8 {
		g[i] = byte(first >> (8 * i))
		g[8+i] = byte(second >> (8 * i))
	}
	g[6] = g[6]&0x0F | 0x80
	g[8] = g[8]&0x3F | 0x80
	return g
}

// mixBits is the finalizer of SplitMix64: a bijection that spreads each bit over all.
func mixBits(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Match evaluates the filter with one message like [Runner.Match], without a budget. Use one Runner
// to evaluate many filters.
func (e *Expr) Match(m Message) (Truth, error) {
	r := Runner{m: m}
	return r.Match(e, Unlimited)
}

func (c constant) value(r *Runner) (Value, error) {
	r.steps += stepsNode
	return c.v, nil
}

func (p parameter) value(r *Runner) (Value, error) {
	r.steps += stepsNode
	return p.v, nil
}

func (n newID) value(r *Runner) (Value, error) {
	r.steps += stepsNode + stepsNewID
	return ID(r.m.NewID(n.call)), nil
}

func (p *property) value(r *Runner) (Value, error) {
	r.countLookup()
	if p.Scope == User {
		v, _ := r.m.User(p.folded)
		return v, nil
	}
	if p.system.use == unusable {
		return Value{}, &EvalError{Err: ErrUnknownProperty, Detail: "sys." + p.Name, Position: p.position}
	}
	return r.m.System(p.Name), nil
}

func (n *namedProperty) value(r *Runner) (Value, error) {
	r.countLookup()
	name, err := n.name.value(r)
	if err != nil || name.kind == KindNull {
		return Value{}, err
	}
	if name.kind != KindText {
		return Value{}, &EvalError{Err: ErrOperand, Detail: "a name is a string, not " + name.kind.String(), Position: n.position}
	}
	if err := r.spend(stepsNameByte * uint64(len(name.text))); err != nil {
		return Value{}, err
	}
	v, _ := r.m.User(Fold(name.text))
	return v, nil
}

func (s *sign) value(r *Runner) (Value, error) {
	r.steps += stepsNode
	v, err := s.of.value(r)
	if err != nil || v.kind == KindNull {
		return Value{}, err
	}
	switch {
	case !v.number():
		return Value{}, &EvalError{Err: ErrOperand, Detail: "a sign before " + v.kind.String(), Position: s.position}
	case !s.minus:
		return v, nil
	}
	return negative(v), nil
}

// negative returns -v. The negative of the smallest integer is itself (C#, unchecked).
func negative(v Value) Value {
	if v.kind == KindInt {
		return Int(-v.AsInt())
	}
	return Double(-v.AsDouble())
}

func (a *arithmetic) value(r *Runner) (Value, error) {
	if err := r.spend(stepsNode + stepsArithmetic); err != nil { // sums are the deepest nodes of a text
		return Value{}, err
	}
	x, err := a.a.value(r)
	if err != nil {
		return Value{}, err
	}
	y, err := a.b.value(r)
	if err != nil || x.kind == KindNull || y.kind == KindNull {
		return Value{}, err
	}
	if r.steps > r.budget {
		return Value{}, errSteps
	}
	switch {
	case x.kind == KindInt && y.kind == KindInt:
		return a.integers(x.AsInt(), y.AsInt())
	case x.number() && y.number():
		if a.op == '%' {
			r.steps += stepsRemainder
		}
		return Double(a.decimals(x.AsDouble(), y.AsDouble())), nil
	case (x.kind == KindTime || x.kind == KindSpan) && (y.kind == KindTime || y.kind == KindSpan):
		return a.times(x, y)
	case a.op == '+' && (x.kind == KindText || y.kind == KindText) && canConcatenate(x.kind) && canConcatenate(y.kind):
		return a.concatenate(r, x, y)
	}
	return Value{}, a.refuse(x, y)
}

// refuse returns the error of an operator that does not accept the types of its operands.
func (a *arithmetic) refuse(x, y Value) error {
	return &EvalError{
		Err: ErrOperand, Detail: fmt.Sprintf("%c between %v and %v", a.op, x.kind, y.kind), Position: a.position,
	}
}

// times computes with timestamps and time spans as .NET does: timestamp - timestamp, timestamp + span, timestamp - span,
// span + span and span - span. A result that does not fit, or a timestamp outside of the years 1 to 9999, is an error.
// A timestamp has milliseconds: the fraction of one is dropped.
func (a *arithmetic) times(x, y Value) (Value, error) {
	sign := int64(1)
	if a.op == '-' {
		sign = -1
	} else if a.op != '+' {
		return Value{}, a.refuse(x, y)
	}
	i, j := x.AsInt(), y.AsInt()
	ok := true
	switch {
	case x.kind == KindTime && y.kind == KindTime && sign < 0:
		// Both are checked first: the difference of two dates fits, also in ticks.
		if ok = isDate(i) && isDate(j); ok {
			return Span((i - j) * ticksPerMillisecond), nil
		}
	case x.kind == KindTime && y.kind == KindSpan:
		ms := j / ticksPerMillisecond * sign
		if rest := j % ticksPerMillisecond * sign; rest < 0 {
			ms-- // the sum is rounded towards the past
		}
		if ok = isDate(i) && isDate(i+ms); ok { // |ms| is below 2^50
			return Time(i + ms), nil
		}
	case x.kind == KindSpan && y.kind == KindSpan:
		sum := i + sign*j
		// The sum is below i if and only if j is negative or subtracted.
		if ok = (sum < i) == (sign > 0 && j < 0 || sign < 0 && j > 0); ok {
			return Span(sum), nil
		}
	}
	if ok {
		return Value{}, a.refuse(x, y)
	}
	return Value{}, &EvalError{Err: ErrDivision, Detail: "of a time", Position: a.position}
}

// isDate reports whether a timestamp is in the years 1 to 9999.
func isDate(ms int64) bool { return dateMin <= ms && ms <= dateMax }

// integers computes as C# does outside of checked: sums, differences and products wrap around; a
// quotient that does not exist or does not fit is an error.
func (a *arithmetic) integers(x, y int64) (Value, error) {
	switch a.op {
	case '+':
		return Int(x + y), nil
	case '-':
		return Int(x - y), nil
	case '*':
		return Int(x * y), nil
	}
	if y == 0 || x == math.MinInt64 && y == -1 {
		return Value{}, &EvalError{Err: ErrDivision, Detail: "between integers", Position: a.position}
	}
	if a.op == '/' {
		return Int(x / y), nil
	}
	return Int(x % y), nil
}

// decimals computes in IEEE 754. Each result is converted explicitly, because Go may
// otherwise fuse a product and a sum on some processors and round only once.
func (a *arithmetic) decimals(x, y float64) float64 {
	switch a.op {
	case '+':
		return float64(x + y)
	case '-':
		return float64(x - y)
	case '*':
		return float64(x * y)
	case '/':
		return float64(x / y)
	}
	return remainder(x, y) // exact, so the same on all processors
}

// canConcatenate reports whether + accepts the kind beside a string.
func canConcatenate(k Kind) bool {
	return k == KindText || k == KindInt || k == KindDouble || k == KindBool || k == KindGUID
}

func (a *arithmetic) concatenate(r *Runner, x, y Value) (Value, error) {
	if err := r.spend(concatenateSteps(x, y)); err != nil {
		return Value{}, err
	}
	left, right := x.String(), y.String()
	if len(left)+len(right) > ComputedBytesMax {
		return Value{}, &EvalError{Err: ErrTooLong, Detail: "+ between strings", Position: a.position}
	}
	return Text(left + right), nil
}

func (t termTruth) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	v, err := t.of.value(r)
	if err != nil || v.kind != KindBool {
		return Unknown, err
	}
	return truth(v.AsBool()), nil
}

func (l *logic) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	// decisive ends the evaluation: one True for OR, one False for AND.
	result, decisive := True, False
	if l.or {
		result, decisive = False, True
	}
	for _, c := range l.of {
		t, err := c.test(r)
		if err != nil {
			return Unknown, err
		}
		if t == decisive {
			return t, nil
		}
		if t == Unknown {
			result = Unknown
		}
	}
	return result, nil
}

func (n not) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	t, err := n.of.test(r)
	return t.Not(), err
}

func (c *comparison) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	x, err := c.a.value(r)
	if err != nil {
		return Unknown, err
	}
	var y Value
	if c.value != nil {
		r.steps += stepsNode
		y = *c.value
	} else if y, err = c.b.value(r); err != nil {
		return Unknown, err
	}
	if x.text != "" && y.text != "" {
		if err := r.spend(compareSteps(len(x.text), len(y.text))); err != nil {
			return Unknown, err
		}
		if c.equal && x.kind == KindText && y.kind == KindText { // the usual case
			return truth(x.text == y.text), nil
		}
	}
	return compareTruth(x, c.op, y), nil
}

// compareTruth returns Unknown for values that the language does not compare, and for an order of
// booleans; a NaN differs from every number, itself included, and has no order (C#).
func compareTruth(x Value, op string, y Value) Truth {
	order, ok := Compare(x, y)
	if !ok {
		if x.number() && y.number() {
			return truth(op == "<>")
		}
		return Unknown
	}
	switch op {
	case "=":
		return truth(order == 0)
	case "<>":
		return truth(order != 0)
	}
	if x.kind == KindBool {
		return Unknown
	}
	switch op {
	case "<":
		return truth(order < 0)
	case "<=":
		return truth(order <= 0)
	case ">":
		return truth(order > 0)
	}
	return truth(order >= 0)
}

func (n *isNull) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	v, err := n.of.value(r)
	return truth((v.kind == KindNull) != n.negated), err
}

// test: a user property exists even if it is NULL, a system property if it is not NULL.
func (e exists) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	if e.of.Scope == User {
		r.countLookup()
		_, found := r.m.User(e.of.folded)
		return truth(found), nil
	}
	v, err := e.of.value(r)
	return truth(v.kind != KindNull), err
}

// test: True if one element is equal; otherwise Unknown if the comparison with one of them is
// (SQL-92 8.4: IN is = SOME); otherwise False.
func (i *in) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	x, err := i.of.value(r)
	if err != nil || x.kind == KindNull {
		return Unknown, err
	}
	result := False
	for _, t := range i.list {
		y, err := t.value(r)
		if err != nil {
			return Unknown, err
		}
		if err := r.spend(compareSteps(len(x.text), len(y.text))); err != nil {
			return Unknown, err
		}
		switch compareTruth(x, "=", y) {
		case True:
			return truth(!i.negated), nil
		case Unknown:
			result = Unknown
		case False:
		}
	}
	if i.negated {
		result = result.Not()
	}
	return result, nil
}
