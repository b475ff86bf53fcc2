package filter

import "math"

// What the evaluation of an expression costs, in steps. The numbers are part of what
// replicas agree on, see the package comment: they never change, and golden files hold them.
const (
	stepsEvaluation  = 32  // each filter and each action
	stepsNode        = 24  // each operator, constant, parameter and property that is looked at
	stepsProperty    = 12  // more, to find a property
	stepsChange      = 2   // more, for each statement of the action that is done
	stepsNameByte    = 8   // a byte of a name that is computed, or that is set or removed
	stepsNewID       = 64  // newid(), more
	stepsRemainder   = 512 // % between decimals, more
	stepsLike        = 64  // LIKE, more
	stepsPatternByte = 8   // a byte of a pattern or escape that depends on the message
	stepsTextByte    = 4   // a byte of a string that LIKE asks, unless it is a longer property
	stepsForeignPair = 16  // a byte of a string and one of a pattern that is not UTF-8
	stepsJoin        = 96  // + between strings, more
	stepsDecimalText = 512 // a decimal as a string, or a string as a value of another type
	stepsNumberText  = 128 // an integer, boolean or GUID as a string
	stepsStatement   = 64  // each SET and REMOVE

	compareBytes = 8  // of strings that are compared in one step
	copyBytes    = 4  // of strings that are joined or set in one step
	likeBytes    = 64 // of a string that a unit of a pattern is compared with in one step
)

// Unlimited is a budget that nothing exceeds.
const Unlimited uint64 = math.MaxUint64

// Runner evaluates filters and actions and counts the steps that it takes, each within a
// budget. Its zero value is ready. It is not safe for concurrent use.
type Runner struct {
	m       Message
	steps   uint64 // of the evaluation at hand
	budget  uint64
	finding uint64 // what it takes to look at a property
	matcher matcher
	units   []unit // of a pattern that depends on the message
}

// Begin says which message is looked at from now on. Its texts are kept until the next
// Begin, which may be with nil.
func (r *Runner) Begin(m Message) {
	r.m = m
	r.matcher.forget()
}

// Match evaluates a filter, from left to right; what cannot change the result any more is
// not looked at. One that takes more steps than its budget fails with ErrSteps, before it
// takes them. The error is an *EvalError.
func (r *Runner) Match(e *Expr, budget uint64) (Truth, error) {
	r.steps, r.budget, r.finding = stepsEvaluation, budget, stepsNode+stepsProperty
	t, err := e.root.test(r)
	return t, r.end(err)
}

// Apply runs an action as [Action.Apply] does, within a budget.
func (r *Runner) Apply(a *Action, w Writer, budget uint64) error {
	r.steps, r.budget, r.finding = stepsEvaluation, budget, stepsNode+stepsProperty
	var err error
	for i := 0; i < len(a.statements) && err == nil; i++ {
		err = a.statements[i].apply(r, w)
		r.finding += stepsChange
	}
	return r.end(err)
}

// Steps is what the last Match or Apply took: never more than its budget.
func (r *Runner) Steps() uint64 { return r.steps }

// spend takes steps unless they are over the budget. Whatever does work that grows with
// what it is given calls it before.
func (r *Runner) spend(n uint64) error {
	if r.steps += n; r.steps > r.budget {
		return errSteps
	}
	return nil
}

// end compares the steps with the budget: those of nodes are mostly only added up, for a text
// has room for few of them.
func (r *Runner) end(err error) error {
	if r.steps > r.budget {
		r.steps = r.budget
		return errSteps
	}
	return err
}

// errSteps is made once: a filter that is over its budget is so message after message.
var errSteps error = &EvalError{Err: ErrSteps, Detail: "more steps than a rule may take for one message", Position: 1}

// pieces is how many steps it takes for so many bytes, when one is enough for size of them.
func pieces(bytes, size int) uint64 { return uint64(bytes+size-1) / uint64(size) }

// compareSteps is what comparing two strings of so many bytes takes beyond the node: they are
// compared as far as the shorter one goes. Other values have none.
func compareSteps(x, y int) uint64 { return pieces(min(x, y), compareBytes) }

// steps is what asking a string takes beyond the nodes.
func (l *like) steps(p *pattern, text string) uint64 {
	units, bytes := uint64(len(p.units)), uint64(len(text))
	if !p.utf8 {
		return stepsLike + stepsForeignPair*(units+1)*(bytes+1)
	}
	n := stepsLike + units*(bytes/likeBytes+1)
	if l.name == nil || bytes < keptTextBytesMin {
		n += stepsTextByte * bytes
	}
	return n
}

// joinSteps is what + between two values takes beyond the node, one of which is a string.
func joinSteps(x, y Value) uint64 {
	return stepsJoin + textSteps(x) + textSteps(y) + pieces(len(x.text)+len(y.text), copyBytes)
}

// textSteps is what it takes to write a value as a string.
func textSteps(v Value) uint64 {
	switch v.kind {
	case KindText:
		return 0
	case KindDouble:
		return stepsDecimalText
	case KindNull, KindBool, KindInt, KindTime, KindGUID, KindBinary:
	}
	return stepsNumberText
}

// convertSteps is what it takes to give a value another type.
func convertSteps(v Value, to Kind) uint64 {
	switch {
	case v.kind == to:
		return 0
	case v.kind == KindText:
		return stepsDecimalText + stepsTextByte*uint64(len(v.text))
	case to == KindText:
		return textSteps(v)
	}
	return 0
}

// look takes the steps of finding a property.
func (r *Runner) look() { r.steps += r.finding }
