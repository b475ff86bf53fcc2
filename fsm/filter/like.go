package filter

// test returns Unknown unless all operands are strings.
func (l *like) test(r *Runner) (Truth, error) {
	r.steps += stepsNode
	v, err := l.of.value(r)
	if err != nil {
		return Unknown, err
	}
	p := l.compiled
	if p == nil {
		made, ok, err := l.pattern(r)
		if !ok {
			return Unknown, err
		}
		p = &made
	}
	if v.kind != KindText {
		return Unknown, nil
	}
	if err := r.spend(l.steps(p, v.text)); err != nil {
		return Unknown, err
	}
	return truth(r.matcher.match(p, v.text, l.name) != l.negated), nil
}

// pattern compiles a pattern that depends on the message. It is not ok, without an error, if an
// operand is not a string.
func (l *like) pattern(r *Runner) (p pattern, ok bool, err error) {
	text, err := l.text.value(r)
	if err != nil {
		return p, false, err
	}
	escape := Text("")
	if l.escape != nil {
		if escape, err = l.escape.value(r); err != nil {
			return p, false, err
		}
		if escape.kind == KindText && escape.text == "" {
			return p, false, l.wrongEscape()
		}
	}
	if text.kind != KindText || escape.kind != KindText {
		return p, false, nil
	}
	if err := r.spend(stepsPatternByte * uint64(len(text.text)+len(escape.text))); err != nil {
		return p, false, err
	}
	p, ok = compilePattern(text.text, escape.text, r.units)
	r.units = p.units
	if !ok {
		return p, false, l.wrongEscape()
	}
	return p, true, nil
}

func (l *like) wrongEscape() error {
	return &EvalError{Err: ErrEscape, Detail: "in LIKE", Position: l.position}
}
