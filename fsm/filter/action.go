package filter

import "strconv"

// Action is a parsed SQL action. Any number of goroutines may use it.
type Action struct {
	statements []statement
	unusable   error // see Check
}

// Check is [Expr.Check] for an action.
func (a *Action) Check() error { return a.unusable }

// statement is SET target = value, or REMOVE target if value is nil.
type statement struct {
	target *property
	value  term
}

// Writer is the copy of the message that an action changes. Names are spelled as Property
// documents. An error ends the action; it must be the same on all replicas.
type Writer interface {
	// Set sets a property to a value, which may be NULL. The value of a system property has the type of that property. from
	// names the user property from which the value was read, unchanged, if p is one that had no value: p then also has the
	// type that the sender gave to from, of which the language knows several as one kind. Otherwise it is "".
	Set(p Property, v Value, from string) error
	// Remove removes a property. Removing a missing property is no error.
	Remove(p Property) error
}

// ParseAction parses an action: SET and REMOVE, with or without semicolons between them. Limits and
// errors are those of Parse, and StatementsMax.
func ParseAction(text string, parameters []Parameter) (*Action, error) {
	if err := checkLength(text); err != nil {
		return nil, err
	}
	return parseAction(text, parameters)
}

// parseAction is ParseAction without the limit of the text.
func parseAction(text string, parameters []Parameter) (*Action, error) {
	p, err := newParser(text, parameters, true)
	if err != nil {
		return nil, err
	}
	a := &Action{}
	for first := true; first || p.token.kind != tokenEnd; first = false {
		if len(a.statements) == StatementsMax {
			return nil, p.fail("the end, after at most " + strconv.Itoa(StatementsMax) + " statements")
		}
		s, err := p.statement()
		if err != nil {
			return nil, err
		}
		a.statements = append(a.statements, s)
		if _, err := p.accept(";"); err != nil {
			return nil, err
		}
	}
	a.unusable = p.unusable
	return a, nil
}

func (p *parser) statement() (s statement, err error) {
	set := p.token.is("SET")
	if !set && !p.token.is("REMOVE") {
		return s, p.fail("SET or REMOVE")
	}
	if err := p.advance(); err != nil {
		return s, err
	}
	if s.target, err = p.property(); err != nil || !set {
		return s, err
	}
	if err := p.expect("="); err != nil {
		return s, err
	}
	s.value, err = p.termHere(p.sum)
	return s, err
}

// Apply runs the statements in order: each is evaluated with m and changes w at once. m must
// reflect the changes of w, so that a statement reads the results of those before it. The error is
// an *EvalError; changes made until then stay, so w should be a copy. There is no budget: see
// [Runner.Apply].
func (a *Action) Apply(m Message, w Writer) error {
	r := Runner{m: m}
	return r.Apply(a, w, Unlimited)
}

func (s *statement) apply(r *Runner, w Writer) error {
	if err := r.spend(stepsStatement + stepsNameByte*uint64(len(s.target.Name))); err != nil {
		return err
	}
	old, err := s.target.value(r) // fails for unknown system properties
	if err != nil {
		return err
	}
	system := s.target.Scope == System
	what := "SET "
	if s.value == nil {
		what = "REMOVE "
	}
	if system && s.target.system.use != settable {
		return s.describe(what, ErrReadOnly)
	}
	if s.value == nil {
		return s.describe(what, w.Remove(s.target.Property))
	}
	v, err := s.value.value(r)
	if err != nil {
		return err
	}
	to := old.kind
	if system {
		to = s.target.system.kind
	}
	if v.kind != KindNull && to != KindNull {
		if err := r.spend(convertSteps(v, to)); err != nil {
			return err
		}
		converted, ok := convert(v, to)
		if ok {
			v = converted
		} else if system {
			return &EvalError{Err: ErrOperand, Detail: what + s.target.String() + " takes " + to.String() + ", not " + v.kind.String(), Position: s.target.position}
		}
	}
	if err := r.spend(stepsPer(len(v.text), copyBytes)); err != nil { // for the copy of the value
		return err
	}
	from := ""
	if source, ok := s.value.(*property); ok && !system && source.Scope == User && old.kind == KindNull {
		from = source.Name
	}
	return s.describe(what, w.Set(s.target.Property, v, from))
}

func (s *statement) describe(what string, err error) error {
	if err == nil {
		return nil
	}
	return &EvalError{Err: err, Detail: what + s.target.String(), Position: s.target.position}
}

// String returns the action in one canonical form, like Expr.String.
func (a *Action) String() string {
	var p printer
	for i, s := range a.statements {
		if i > 0 {
			p.write("; ")
		}
		if s.value == nil {
			p.write("REMOVE ", s.target.String())
			continue
		}
		p.write("SET ", s.target.String(), " = ")
		s.value.print(&p)
	}
	return p.String()
}
