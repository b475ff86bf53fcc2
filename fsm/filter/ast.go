package filter

// A term evaluates to a value, a condition to a truth value. The types of nodes follow; eval.go
// evaluates them, print.go prints them.
type (
	term interface {
		value(r *Runner) (Value, error)
		print(p *printer)
	}
	condition interface {
		test(r *Runner) (Truth, error)
		print(p *printer)
	}
)

// constant is a literal.
type constant struct{ v Value }

// parameter is @name. Its value is bound when the text is parsed.
type parameter struct {
	name string
	v    Value
}

// property is a property of the message.
type property struct {
	Property
	folded   string         // Fold of the name, for User
	system   systemProperty // for System
	position int
}

// namedProperty is property(name): the user property with a computed name.
type namedProperty struct {
	name     term
	position int
}

// newID is newid(). Calls are numbered in the order of the text, so that each gets an id of its
// own.
type newID struct{ call int }

// sign is -a or +a.
type sign struct {
	of       term
	minus    bool
	position int
}

// arithmetic is a op b, op one of + - * / %.
type arithmetic struct {
	a, b     term
	op       byte
	position int
}

// termTruth is a value used as a condition, as in NOT flag.
type termTruth struct{ of term }

// logic is AND or OR of two or more conditions.
type logic struct {
	of []condition
	or bool
}

// not is NOT c.
type not struct{ of condition }

// comparison is a op b, op one of = <> < <= > >=.
type comparison struct {
	a, b  term
	op    string
	equal bool   // op is =
	value *Value // of b, if that is a constant or parameter, as in most filters
}

// isNull is a IS [NOT] NULL.
type isNull struct {
	of      term
	negated bool
}

// exists is EXISTS(property).
type exists struct{ of *property }

// in is a [NOT] IN (list).
type in struct {
	of      term
	list    []term
	negated bool
}

// like is a [NOT] LIKE pattern [ESCAPE escape].
type like struct {
	of, text, escape term      // escape is nil if there is none
	compiled         *pattern  // compiled when parsed, if text and escape do not depend on the message
	name             *Property // of the tested property, folded; nil if a term is tested
	negated          bool
	position         int
}
