package filter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func user(name string, v Value) Condition   { return Condition{Property{Name: name}, v} }
func system(name string, v Value) Condition { return Condition{Property{Name: name, Scope: System}, v} }

func correlation(tb testing.TB, conditions ...Condition) *Correlation {
	tb.Helper()
	c, err := NewCorrelation(conditions)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestCorrelationMatch(t *testing.T) {
	t.Parallel()
	for i, row := range []struct {
		conditions []Condition
		want       bool
	}{
		{nil, true},
		{[]Condition{system(Label, Text("order"))}, true},
		{[]Condition{system("LABEL", Text("order"))}, true},
		{[]Condition{system("subject", Text("order"))}, true},
		{[]Condition{system(Label, Text("Order"))}, false},
		{[]Condition{system(CorrelationID, Text("x"))}, false},
		{[]Condition{system(To, Text(""))}, false},
		{[]Condition{system(ReplyTo, Text("x"))}, false}, // the message does not even know it: no error
		{[]Condition{user("color", Text("red"))}, true},
		{[]Condition{user("COLOR", Text("red"))}, true},
		{[]Condition{user("color", Text("RED"))}, false},
		{[]Condition{user("GRÖßE", Int(7))}, true},
		{[]Condition{user("missing", Text(""))}, false},
		{[]Condition{user("nothing", Text(""))}, false},
		{[]Condition{user("empty", Text(""))}, true},
		{[]Condition{user("Size", Int(10))}, true},
		{[]Condition{user("Size", Double(10))}, true},
		{[]Condition{user("Size", Text("10"))}, false},
		{[]Condition{user("num", Int(10))}, false},
		{[]Condition{user("price", Double(2.5))}, true},
		{[]Condition{user("price", Int(2))}, false},
		{[]Condition{user("big", Double(1<<53))}, false}, // rounding makes nothing equal
		{[]Condition{user("nan", Double(math.NaN()))}, false},
		{[]Condition{user("inf", Double(math.Inf(1)))}, true},
		{[]Condition{user("max", Double(1<<63))}, false},
		{[]Condition{user("min", Double(-1<<63))}, true},
		{[]Condition{user("min", Double(1<<63))}, false}, // processors differ in converting 2^63
		{[]Condition{user("max", Double(-1<<63))}, false},
		{[]Condition{user("flag", Bool(true))}, true},
		{[]Condition{user("flag", Int(1))}, false},
		{[]Condition{user("bin", Binary([]byte{0, 255}))}, true},
		{[]Condition{user("when", Time(2000))}, true},
		{[]Condition{user("when", Int(2000))}, false},
		{[]Condition{system(Label, Text("order")), user("color", Text("red")), user("Size", Int(10))}, true},
		{[]Condition{system(Label, Text("order")), user("color", Text("red")), user("Size", Int(11))}, false},
		{[]Condition{system(Label, Text("x")), user("color", Text("red"))}, false},
	} {
		c := correlation(t, row.conditions...)
		m := sample()
		if got := c.Match(m); got != row.want {
			t.Errorf("%d: %v: got %v", i, row.conditions, got)
		}
		x := NewIndex[uint64]()
		x.Add(5, c, ByFewest, 5)
		if got, _ := x.Match(m, nil); slices.Equal(got, []Indexed[uint64]{{5, 5}}) != row.want {
			t.Errorf("%d: %v: the index gives %v", i, row.conditions, got)
		}
	}
}

func TestCorrelationsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][]Condition{
		{system("SequenceNumber", Int(1))},
		{system("Nonsense", Int(1))},
		{user("x", Value{})},
		{user("x", Int(1)), user("y", Int(1)), user("X", Int(2))},
		{system(Label, Text("a")), system("Subject", Text("a"))},
	} {
		if _, err := NewCorrelation(wrong); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	// The same name in both scopes is two properties.
	correlation(t, system("To", Text("a")), user("To", Text("a")))
}

func sortByID(list []Indexed[uint64]) {
	slices.SortFunc(list, func(a, b Indexed[uint64]) int { return cmp.Compare(a.ID, b.ID) })
}

// The index must give what testing every filter gives, whatever is added and removed.
func TestIndexAgreesWithTestingAll(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "B", "c", "D"}
	value := func() Value {
		return []Value{Int(random.Int64N(3)), Double(1), Double(0.5), Text("x"), Text("y"), Bool(true), Double(math.NaN())}[random.IntN(7)]
	}
	x, all := NewIndex[uint64](), map[uint64]*Correlation{}
	for step := range 20_000 {
		id := random.Uint64N(300)
		if random.IntN(3) == 0 {
			x.Remove(id)
			delete(all, id)
		} else {
			var conditions []Condition
			for _, i := range random.Perm(4)[:random.IntN(4)] {
				conditions = append(conditions, user(names[i], value()))
			}
			if random.IntN(2) == 0 {
				conditions = append(conditions, system([]string{Label, To}[random.IntN(2)], Text("x")))
			}
			c := correlation(t, conditions...)
			x.Add(id, c, ByFewest, id)
			all[id] = c
		}
		if step%20 != 0 {
			continue
		}
		m := &fake{system: map[string]Value{Label: Text([]string{"x", "y"}[random.IntN(2)]), To: Text("x")}, user: map[string]Value{}}
		for _, i := range random.Perm(4)[:random.IntN(5)] {
			m.user[names[i]] = value()
		}
		others := []Indexed[uint64]{{999, 999}}
		want := slices.Clone(others)
		for id, c := range all {
			if c.Match(m) {
				want = append(want, Indexed[uint64]{id, id})
			}
		}
		sortByID(want[1:])
		got, steps := x.Match(m, others)
		sortByID(got[1:])
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: got %v, want %v", step, got, want)
		}
		// One that was told where filters are does the same, in whatever order they came.
		told := NewIndex[uint64]()
		for id, f := range x.filters {
			if by := told.Add(id, f.filter, f.by, id); by != f.by {
				t.Fatalf("step %d: filed by %d, told %d", step, by, f.by)
			}
		}
		again, same := told.Match(m, others)
		if sortByID(again[1:]); !slices.Equal(again, want) || same != steps {
			t.Fatalf("step %d: got %v in %d steps, want %v in %d", step, again, same, want, steps)
		}
		if x.Len() != len(all) {
			t.Fatalf("step %d: %d filters, want %d", step, x.Len(), len(all))
		}
	}
	for id := range all {
		x.Remove(id)
	}
	if len(x.filters)+len(x.users)+len(x.always)+len(x.conditionIDs) != 0 || len(x.free) != len(x.conditions) {
		t.Errorf("%d filters, %d properties, %d always, %d conditions stay behind", len(x.filters), len(x.users), len(x.always), len(x.conditionIDs))
	}
	for i := range x.system {
		if x.system[i] != 0 {
			t.Errorf("%s stays behind", systemNames()[i])
		}
	}
}

// What many filters have in common must not gather them in one bucket.
func TestIndexTestsFewFilters(t *testing.T) {
	t.Parallel()
	x := NewIndex[uint64]()
	const filters = 10_000
	for i := range filters {
		x.Add(uint64(i), correlation(t,
			system(Label, Text("order")), user("customer", Text(fmt.Sprint(i))), user("region", Text(fmt.Sprint(i%5)))), ByFewest, uint64(i))
	}
	longest := 0
	for i := range x.conditions {
		longest = max(longest, len(x.conditions[i].filters))
	}
	if longest > 2 {
		t.Errorf("a bucket of %d filters", longest)
	}
	m := sample()
	m.user["customer"], m.user["region"] = Text("7"), Text("2")
	// Three conditions hold; at most two filters are filed by each.
	if got, steps := x.Match(m, nil); !slices.Equal(got, []Indexed[uint64]{{7, 7}}) || steps > 6*(stepsTested+3*stepsCondition) {
		t.Errorf("got %v in %d steps", got, steps)
	}
}

// Names that differ in case only lead to the same bucket; its filters come once.
func TestIndexGivesEachFilterOnce(t *testing.T) {
	t.Parallel()
	x := NewIndex[uint64]()
	x.Add(1, correlation(t, user("a", Int(1))), ByFewest, 1)
	m := &fake{user: map[string]Value{"a": Int(1), "A": Int(1)}}
	if got, _ := x.Match(m, nil); !slices.Equal(got, []Indexed[uint64]{{1, 1}}) {
		t.Errorf("got %v", got)
	}
}
