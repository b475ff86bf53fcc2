package filter_test

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm/filter"
)

// order is a message with application properties and a label. It also collects the changes of an action.
type order map[string]filter.Value

// System returns the label, the only system property that this message has.
func (o order) System(name string) filter.Value { return o["sys."+name] }

// User returns an application property. The name is folded, so keys of an order must be too.
func (o order) User(folded string) (v filter.Value, found bool) {
	v, found = o[folded]
	return v, found
}

// NewID returns ids for newid(): equal on every replica.
func (o order) NewID(call int) filter.GUID { return filter.DeriveID(1, 2, call) }

// Set and Remove change a property.
func (o order) Set(p filter.Property, v filter.Value, _ string) error {
	o[filter.Fold(p.Name)] = v
	return nil
}

func (o order) Remove(p filter.Property) error {
	delete(o, filter.Fold(p.Name))
	return nil
}

func ExampleParse() {
	sql, err := filter.Parse("sys.Label = 'order' AND size > 100 AND region IN ('eu', 'uk')", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	large := order{"sys.Label": filter.Text("order"), "size": filter.Int(700), "region": filter.Text("eu")}
	elsewhere := order{"sys.Label": filter.Text("order"), "size": filter.Int(700)} // no region: NULL
	for _, m := range []order{large, elsewhere} {
		fmt.Println(sql.Match(m))
	}
	// Output:
	// true <nil>
	// unknown <nil>
}

func ExampleParse_error() {
	_, err := filter.Parse("size >> 100", nil)
	fmt.Println(err)
	// Output: character 7: expected a value, a property or a condition, found ">"
}

func ExampleParseAction() {
	action, err := filter.ParseAction("SET checked = TRUE; SET size = size + 1; REMOVE region", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	m := order{"size": filter.Int(41), "region": filter.Text("eu")}
	fmt.Println(action.Apply(m, m))
	fmt.Println(m["checked"], m["size"], len(m))
	// Output:
	// <nil>
	// True 42 2
}

func ExampleNewCorrelation() {
	correlation, err := filter.NewCorrelation([]filter.Condition{
		{Property: filter.Property{Name: filter.Label, Scope: filter.System}, Value: filter.Text("order")},
		{Property: filter.Property{Name: "region", Scope: filter.User}, Value: filter.Text("eu")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(correlation.Match(order{"sys.Label": filter.Text("order"), "region": filter.Text("eu")}))
	fmt.Println(correlation.Match(order{"sys.Label": filter.Text("invoice"), "region": filter.Text("eu")}))
	// Output:
	// true
	// false
}
