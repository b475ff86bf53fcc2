package filter

import "math"

// Prices of evaluation, in steps: see the package comment. Replicas must agree on them, so they
// never change, and golden files hold them.
const (
	stepsEvaluation  = 32  // each filter and each action
	stepsNode        = 24  // each operator, constant, parameter and property that is evaluated
	stepsArithmetic  = 24  // in addition, + - * / and %: the nodes of a long sum lie far apart in memory
	stepsProperty    = 12  // in addition, to find a property
	stepsChange      = 2   // in addition, for each earlier statement of the action
	stepsNameByte    = 8   // a byte of a property name that is computed, set or removed
	stepsNewID       = 64  // in addition, newid()
	stepsRemainder   = 512 // in addition, % between decimals
	stepsLike        = 64  // in addition, LIKE
	stepsPatternByte = 8   // a byte of a pattern or escape that depends on the message
	stepsTextByte    = 4   // a byte of the string of LIKE, unless it is a property of keptTextBytesMin or more
	stepsForeignPair = 16  // a byte of a string and one of a pattern that is not UTF-8
	stepsConcatenate = 96  // in addition, + between strings
	stepsDecimalText = 512 // a decimal as a string, or a string as a value of another type
	stepsNumberText  = 128 // an integer, boolean or GUID as a string
	stepsStatement   = 64  // each SET and REMOVE

	compareBytes = 8  // of strings that are compared in one step
	copyBytes    = 4  // of strings that are joined or set in one step
	likeBytes    = 64 // of a string that a unit of a pattern is compared with in one step
)

// Unlimited is a budget that no evaluation exceeds.
const Unlimited uint64 = math.MaxUint64

// Runner evaluates filters and actions and counts the steps, each within a budget. The zero value
// is ready for use. It is not safe for concurrent use.
type Runner struct {
	m           Message
	steps       uint64 // of the current evaluation
	budget      uint64
	lookupSteps uint64 // steps to look up a property
	matcher     matcher
	units       []unit // of a pattern that depends on the message
}

// Begin sets the message that the following calls evaluate. The Runner keeps references to its
// strings until the next Begin; Begin(nil) releases them.
func (r *Runner) Begin(m Message) {
	r.m = m
	r.matcher.forget()
}

// Match evaluates a filter from left to right; it skips parts that cannot change the result any
// more. A filter that would exceed the budget fails with ErrSteps. Errors are *EvalError.
func (r *Runner) Match(e *Expr, budget uint64) (Truth, error) {
	r.steps, r.budget, r.lookupSteps = stepsEvaluation, budget, stepsNode+stepsProperty
	t, err := e.root.test(r)
	return t, r.end(err)
}

// Apply runs an action as [Action.Apply] does, within a budget.
func (r *Runner) Apply(a *Action, w Writer, budget uint64) error {
	r.steps, r.budget, r.lookupSteps = stepsEvaluation, budget, stepsNode+stepsProperty
	var err error
	for i := 0; i < len(a.statements) && err == nil; i++ {
		err = a.statements[i].apply(r, w)
		r.lookupSteps += stepsChange
	}
	return r.end(err)
}

// Steps returns the steps that the last Match or Apply took: never more than its budget.
func (r *Runner) Steps() uint64 { return r.steps }

// spend counts steps and fails when they exceed the budget. Work that grows with its input calls it
// first.
func (r *Runner) spend(n uint64) error {
	if r.steps += n; r.steps > r.budget {
		return errSteps
	}
	return nil
}

// end compares the steps with the budget. Steps of single nodes are only added up during the
// evaluation, because a text holds few nodes.
func (r *Runner) end(err error) error {
	if r.steps > r.budget {
		r.steps = r.budget
		return errSteps
	}
	return err
}

// errSteps is allocated once: a filter that exceeds its budget often does so for every message.
var errSteps error = &EvalError{Err: ErrSteps, Detail: "more steps than a rule may take for one message", Position: 1}

// OverBudget returns the error of an evaluation that exceeds its budget.
func OverBudget() error { return errSteps }

// stepsPer returns the steps for a number of bytes, at one step per size bytes.
func stepsPer(bytes, size int) uint64 { return uint64(bytes+size-1) / uint64(size) }

// compareSteps returns the steps, beyond that of the node, for comparing two strings of x and y
// bytes: they are compared up to the end of the shorter one. Other values take none.
func compareSteps(x, y int) uint64 { return stepsPer(min(x, y), compareBytes) }

// steps returns the steps of matching a string in addition to the nodes.
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

// concatenateSteps returns the steps of + between two values, one of them a string, in addition to
// the node.
func concatenateSteps(x, y Value) uint64 {
	return stepsConcatenate + textSteps(x) + textSteps(y) + stepsPer(len(x.text)+len(y.text), copyBytes)
}

// textSteps returns the steps of converting a value to a string.
func textSteps(v Value) uint64 {
	switch v.kind {
	case KindText:
		return 0
	case KindDouble:
		return stepsDecimalText
	case KindNull, KindBool, KindInt, KindTime, KindGUID, KindBinary, KindSpan:
	}
	return stepsNumberText
}

// convertSteps returns the steps of converting a value to another type.
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

// countLookup counts the steps of looking up a property.
func (r *Runner) countLookup() { r.steps += r.lookupSteps }
