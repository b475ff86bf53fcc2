package evaluate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// TestPropertiesAreFound: by table or one after the other, the first of those with one name
// counts, names differ in more than case, and the two scopes have nothing to do with each other.
func TestPropertiesAreFound(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		list := make([]fsm.Property, random.IntN(4*linearSearchMax))
		for i := range list {
			name := filter.Property{Name: fmt.Sprintf("%c%d", 'a'+rune(32*-random.IntN(2)), random.IntN(20)), Scope: filter.Scope(random.IntN(2))}
			if name.Scope == filter.System {
				name.Name = []string{filter.Label, filter.To, filter.MessageID}[random.IntN(3)]
			}
			list[i] = fsm.Property{Name: name, Value: filter.Int(int64(i))}
		}
		var s Message
		s.Begin(Arrival{Topic: 1, Number: 1}, fsm.AppendProperties(nil, list))
		for _, name := range []string{"a0", "a7", "a19", "A7", "", filter.Label, filter.To} {
			for scope := range filter.System + 1 {
				want, exists := filter.Value{}, false
				for i := len(list) - 1; i >= 0; i-- {
					fold := list[i].Name.Name
					if scope == filter.User {
						fold = filter.Fold(fold)
					}
					if fold == name && list[i].Name.Scope == scope {
						want, exists = list[i].Value, true
					}
				}
				if got, found := s.find(scope, name); got != want || found != exists {
					t.Fatalf("%v.%s of %v: %v %v, want %v %v", scope, name, list, got, found, want, exists)
				}
			}
		}
	}
}

// TestPropertyTableAllocatesNothing beyond the copy that properties are pieces of.
func TestPropertyTableAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	var list []fsm.Property
	for i := range 100 {
		list = append(list, fsm.Property{Name: filter.Property{Name: fmt.Sprint("p", i)}, Value: filter.Int(int64(i))})
	}
	raw := fsm.AppendProperties(nil, list)
	var s Message
	if n := testing.AllocsPerRun(100, func() {
		s.Begin(Arrival{Topic: 1, Number: 1}, raw)
		s.find(filter.User, "p50")
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
