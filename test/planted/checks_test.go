package main

import (
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm/planted"
)

func TestEveryFaultHasOneCheck(t *testing.T) {
	t.Parallel()
	var checked []planted.Fault
	for _, c := range checks() {
		checked = append(checked, c.fault)
	}
	if !slices.Equal(checked, planted.Faults) {
		t.Errorf("the checks are of the faults %q, and the faults are %q", checked, planted.Faults)
	}
	if !slices.IsSorted(planted.Faults) {
		t.Error("the faults are not in alphabetical order")
	}
}

func TestPartsCoverEveryFaultOnce(t *testing.T) {
	t.Parallel()
	all := []check{{fault: "a"}, {fault: "b"}, {fault: "c"}, {fault: "d"}}
	var got []check
	for part := range 3 {
		chosen, err := choose(all, part+1, 3, nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, chosen...)
	}
	if len(got) != len(all) {
		t.Errorf("three parts hold %d checks, want %d", len(got), len(all))
	}
	if _, err := choose(all, 4, 3, nil); err == nil {
		t.Error("part 4 of 3 was accepted")
	}
	if _, err := choose(all, 1, 1, []string{"nonsense"}); err == nil {
		t.Error("a fault that does not exist was accepted")
	}
}
