package main

import (
	"testing"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/overlay"
	"github.com/peeklock/peeklock/test/planted/faults"
	"github.com/peeklock/peeklock/test/upgrade"
)

func TestFaultsFitTheNextRelease(t *testing.T) {
	t.Parallel()
	tree := kit.Must(faults.Tree())(t)
	next := kit.Must(upgrade.Tree())(t)
	if _, err := overlay.Texts(next, tree); err != nil {
		t.Errorf("the faults and the next release change the same text: %v", err)
	}
}

func TestPartsCoverEveryFaultOnce(t *testing.T) {
	t.Parallel()
	all := []faults.Fault{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	var got []faults.Fault
	for part := range 3 {
		chosen := kit.Must(choose(all, part+1, 3, nil))(t)
		got = append(got, chosen...)
	}
	if len(got) != len(all) {
		t.Errorf("three parts hold %d faults, want %d", len(got), len(all))
	}
	if _, err := choose(all, 4, 3, nil); err == nil {
		t.Error("part 4 of 3 was accepted")
	}
	if _, err := choose(all, 1, 1, []string{"nonsense"}); err == nil {
		t.Error("a fault that does not exist was accepted")
	}
}
