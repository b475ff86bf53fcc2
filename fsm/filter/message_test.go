package filter

import (
	"maps"
	"math"
	"slices"
)

// fake is a message for tests; it is its own Writer.
type fake struct {
	system map[string]Value
	user   map[string]Value // by any name
	ids    int              // calls of NewID
	kept   []string         // properties that keep the type of another
}

func (f *fake) System(name string) Value { return f.system[name] }

func (f *fake) User(folded string) (Value, bool) {
	if v, found := f.user[folded]; found {
		return v, true
	}
	for name, v := range f.user {
		if Fold(name) == folded {
			return v, true
		}
	}
	return Value{}, false
}

func (f *fake) NewID(call int) GUID {
	f.ids++
	return DeriveID(42, 7, call)
}

func (f *fake) EachUser(visit func(string, Value)) {
	for name, v := range f.user {
		visit(name, v)
	}
}

func (f *fake) Set(p Property, v Value, from string) error {
	if from != "" {
		f.kept = append(f.kept, p.Name+" from "+from)
	}
	f.of(p)[p.Name] = v
	return nil
}

func (f *fake) Remove(p Property) error {
	if p.Scope == System {
		f.system[p.Name] = Value{}
		return nil
	}
	delete(f.user, p.Name)
	return nil
}

func (f *fake) of(p Property) map[string]Value {
	if p.Scope == System {
		return f.system
	}
	for name := range f.user {
		if Fold(name) == Fold(p.Name) && name != p.Name {
			delete(f.user, name)
		}
	}
	return f.user
}

// sample is the message that testdata/filters.txt speaks of.
func sample() *fake {
	return &fake{
		system: map[string]Value{
			Label: Text("order"), CorrelationID: {}, To: {}, MessageID: Text("m1"),
			SequenceNumber: Int(42), EnqueuedTimeUTC: Time(1000),
		},
		user: map[string]Value{
			"color": Text("red"), "Size": Int(10), "price": Double(2.5), "flag": Bool(true), "off": Bool(false),
			"empty": Text(""), "nothing": {}, "code": Text("AB%_C"), "num": Text("10"), "big": Int(1<<53 + 1),
			"min": Int(math.MinInt64), "max": Int(math.MaxInt64), "nan": Double(math.NaN()), "inf": Double(math.Inf(1)),
			"two words": Int(1), "a]b": Int(2), "and": Text("word"), "größe": Int(7), "pointer": Text("color"),
			"guid": ID(GUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}),
			"when": Time(2000), "span": Span(36_000_000_001), "bin": Binary([]byte{0, 255}),
		},
	}
}

func parameters() []Parameter {
	return []Parameter{
		{"s", Text("red")},
		{"@i", Int(10)},
		{"d", Double(2.5)},
		{"t", Bool(true)},
		{"n", Value{}},
		{"when", Time(1000)},
		{"hour", Span(ticksPerHour)},
		{"tick", Span(1)},
		{"longest", Span(math.MaxInt64)},
		{"@Pat", Text("r%")},
	}
}

func sortedKeys(m map[string]Value) []string { return slices.Sorted(maps.Keys(m)) }
