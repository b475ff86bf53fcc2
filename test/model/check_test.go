package model_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/test/model"
)

// jugs is the riddle of two jugs of 3 and 5 litres.
type jugs struct{ wanted int }

func (jugs) Initial() [][2]int { return [][2]int{{0, 0}} }

func (jugs) Next(s *[2]int, emit func(model.Action, *[2]int)) {
	size := [2]int{3, 5}
	for i := range s {
		full, empty, poured := *s, *s, *s
		full[i], empty[i] = size[i], 0
		moved := min(s[i], size[1-i]-s[1-i])
		poured[i] -= moved
		poured[1-i] += moved
		emit(model.Action(i), &full)
		emit(model.Action(2+i), &empty)
		emit(model.Action(4+i), &poured)
	}
}

func (j jugs) Check(s *[2]int) error {
	if slices.Contains(s[:], j.wanted) {
		return errors.New("measured")
	}
	return nil
}

func (jugs) Describe(a model.Action) string { return fmt.Sprint(a) }

func TestShortestViolationIsFound(t *testing.T) {
	t.Parallel()
	if r := model.Run(jugs{wanted: 4}, 1000); r.Violation == nil || len(r.Trace) != 6 || r.Complete {
		t.Errorf("4 litres: %v, %v, want 6 actions", r, r.Trace)
	}
	if r := model.Run(jugs{wanted: 6}, 1000); r.Violation != nil || r.States != 16 || !r.Complete {
		t.Errorf("6 litres: %v, want all of 16 states", r)
	}
	if r := model.Run(jugs{wanted: 6}, 4); r.Complete || r.States < 4 {
		t.Errorf("with at most 4 states: %v", r)
	}
}
