package filter

import (
	"fmt"
	"runtime"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{
		"short": "color = 'red' AND size > 10",
		"long": "sys.Label LIKE '%bus%' OR user.tag IN ('queue', 'topic', 'subscription') AND NOT (a + b * 2 > 10 OR [two words] IS NULL)" +
			" AND (region = 'eu' OR region = 'us') AND EXISTS(customer) AND price * 1.19 <= 100.0",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := Parse(text, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// lean is a message whose properties are found as fsm finds them: a short list, searched.
type lean struct {
	names  []string
	values []Value
}

func (l *lean) System(name string) Value {
	if name == Label {
		return Text("order")
	}
	return Value{}
}

func (l *lean) User(folded string) (Value, bool) {
	for i, name := range l.names {
		if name == folded {
			return l.values[i], true
		}
	}
	return Value{}, false
}

func (l *lean) NewID(int) GUID { return GUID{} }

func (l *lean) EachUser(visit func(string, Value)) {
	for i, name := range l.names {
		visit(name, l.values[i])
	}
}

func order(customer int) *lean {
	return &lean{
		[]string{"customer", "region", "size", "price", "priority"},
		[]Value{Text(fmt.Sprint(customer)), Text("eu"), Int(12), Double(99.5), Int(3)},
	}
}

// One message against 1,000 SQL filters, of which 10 match.
func BenchmarkMatch10Of1000SQL(b *testing.B) {
	for name, form := range map[string]string{
		"equality": "customer = '%d'",
		"usual":    "region = 'eu' AND customer = '%d' AND size > 10",
		"like":     "customer LIKE '%d' AND sys.Label LIKE 'ord%%'",
	} {
		b.Run(name, func(b *testing.B) {
			filters := make([]*Expr, 1000)
			for i := range filters {
				var err error
				if filters[i], err = Parse(fmt.Sprintf(form, i/10), nil); err != nil {
					b.Fatal(err)
				}
			}
			var r Runner
			m := order(42)
			b.ReportAllocs()
			for b.Loop() {
				r.Begin(m)
				matched := 0
				for _, f := range filters {
					if t, err := r.Match(f, Unlimited); err == nil && t == True {
						matched++
					}
				}
				if matched != 10 {
					b.Fatalf("%d matched", matched)
				}
			}
		})
	}
}

// One message against correlation filters, of which one matches: by index, and for
// comparison one by one.
func BenchmarkMatch1Correlation(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		x := NewIndex[uint64]()
		all := make([]*Correlation, n)
		before := heap()
		for i := range n {
			all[i] = correlation(b, system(Label, Text("order")), user("customer", Text(fmt.Sprint(i))))
			x.Add(uint64(i), all[i], ByFewest, uint64(i))
		}
		bytes := heap() - before
		m := order(n / 2)
		b.Run(fmt.Sprintf("index/%d", n), func(b *testing.B) {
			var found []Indexed[uint64]
			b.ReportAllocs()
			for b.Loop() {
				if found, _ = x.Match(m, found[:0]); len(found) != 1 {
					b.Fatalf("%d matched", len(found))
				}
			}
			b.ReportMetric(float64(bytes)/float64(n), "heap-B/filter")
		})
		b.Run(fmt.Sprintf("each/%d", n), func(b *testing.B) {
			for b.Loop() {
				matched := 0
				for _, c := range all {
					if c.Match(m) {
						matched++
					}
				}
				if matched != 1 {
					b.Fatalf("%d matched", matched)
				}
			}
		})
		runtime.KeepAlive(x)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func BenchmarkAction(b *testing.B) {
	a, err := ParseAction("SET size = size * 2; SET sys.Label = sys.Label + '-eu'; REMOVE region", nil)
	if err != nil {
		b.Fatal(err)
	}
	m := order(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Apply(m, nowhere{}); err != nil {
			b.Fatal(err)
		}
	}
}

// nowhere is a Writer that keeps nothing.
type nowhere struct{}

func (nowhere) Set(Property, Value, string) error { return nil }
func (nowhere) Remove(Property) error             { return nil }
