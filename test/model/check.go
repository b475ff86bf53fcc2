package model

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// Action is an action of a model, in an encoding of the model.
type Action uint32

// Model is a protocol with bounds, so that it has a finite number of states.
type Model[S comparable] interface {
	// Initial returns the first states.
	Initial() []S
	// Next calls emit with each action that is possible in a state, and the state after it.
	Next(s *S, emit func(Action, *S))
	// Check returns an error for a state that breaks an invariant.
	Check(s *S) error
	// Describe returns an action in words.
	Describe(a Action) string
}

// Result is what a run has found.
type Result struct {
	States    int  // different ones that were visited
	Depth     int  // actions to the farthest state
	Complete  bool // all states that can be reached were visited
	Violation error
	Trace     []string // the actions that lead to the violation, as few as possible
}

// String describes the result.
func (r Result) String() string {
	if r.Violation != nil {
		return fmt.Sprintf("%d states, violation after %d actions: %v", r.States, len(r.Trace), r.Violation)
	}
	return fmt.Sprintf("%d states, depth %d, complete: %t", r.States, r.Depth, r.Complete)
}

// visit is how a state was reached first.
type visit struct {
	from   int32 // number of the state before it, -1 for none
	action Action
}

// reached is a state whose actions were not followed yet.
type reached[S comparable] struct {
	state  S
	number int32
}

// search holds the states that were visited by hashes of 128 bits: two of 10 million states are taken for one with a probability
// below 10^-24.
type search[S comparable] struct {
	model  Model[S]
	seeds  [2]maphash.Seed
	known  map[[2]uint64]struct{}
	visits []visit
	next   []reached[S]
	result Result
}

// Run visits the states of a model until it has found a violation, has visited all, or has visited statesMax.
func Run[S comparable](m Model[S], statesMax int) Result {
	x := &search[S]{model: m, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, known: make(map[[2]uint64]struct{})}
	for _, s := range m.Initial() {
		x.add(&s, visit{from: -1})
	}
	for len(x.next) > 0 && x.result.Violation == nil {
		now := x.next
		x.next = nil
		for i := range now {
			if len(x.visits) >= statesMax {
				x.result.States = len(x.visits)
				return x.result
			}
			m.Next(&now[i].state, func(a Action, s *S) { x.add(s, visit{from: now[i].number, action: a}) })
			if x.result.Violation != nil {
				break
			}
		}
		if len(x.next) > 0 {
			x.result.Depth++
		}
	}
	x.result.States, x.result.Complete = len(x.visits), x.result.Violation == nil
	return x.result
}

// add visits a state, unless it was visited before.
func (x *search[S]) add(s *S, by visit) {
	hash := [2]uint64{maphash.Comparable(x.seeds[0], *s), maphash.Comparable(x.seeds[1], *s)}
	if _, is := x.known[hash]; is || x.result.Violation != nil {
		return
	}
	x.known[hash] = struct{}{}
	number := int32(len(x.visits))
	x.visits = append(x.visits, by)
	if err := x.model.Check(s); err != nil {
		x.result.Violation, x.result.Trace = err, x.trace(number)
		return
	}
	x.next = append(x.next, reached[S]{*s, number})
}

// trace returns the actions that lead to a state.
func (x *search[S]) trace(number int32) (actions []string) {
	for v := x.visits[number]; v.from >= 0; v = x.visits[v.from] {
		actions = append(actions, x.model.Describe(v.action))
	}
	slices.Reverse(actions)
	return actions
}
