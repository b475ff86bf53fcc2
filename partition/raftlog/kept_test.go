package raftlog

import (
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// A leader keeps the end of what raft deletes until it need not any more; a replica that does not lead keeps nothing, and
// none deletes what its predecessor on this member has kept.
func TestLeaderKeepsPartOfWhatRaftDeletes(t *testing.T) {
	t.Parallel()
	eachKind(t, testLeaderKeepsPartOfWhatRaftDeletes)
}

func testLeaderKeepsPartOfWhatRaftDeletes(t *testing.T, kind Kind) {
	l := openTestLog(t, filepath.Join(t.TempDir(), "0.db"), kind)
	g := testGroup(t, l, 1)
	leads, from := true, uint64(41)
	keep := func() uint64 { return from }
	g.SetLeader(func() bool { return leads })
	g.KeepFrom(keep)
	kit.OK(t, g.StoreLogs(entries(1, 100, 1)))
	begins := func(err error, want uint64) {
		t.Helper()
		if first, _ := g.FirstIndex(); err != nil || first != want {
			t.Errorf("the log begins at %d, want %d: %v", first, want, err)
		}
	}
	begins(g.DeleteRange(1, 20), 21)
	begins(g.DeleteRange(21, 50), 41)
	begins(g.DeleteKept(), 41)
	from = 45
	begins(g.DeleteKept(), 45)
	from = 101
	begins(g.DeleteKept(), 51)
	begins(g.DeleteKept(), 51)
	from = 55
	begins(g.DeleteRange(51, 60), 55)
	g.KeepFrom(keep) // another replica
	from = 101
	begins(g.DeleteKept(), 55)
	leads, from = false, 60
	begins(g.DeleteRange(55, 70), 71)

	// A new leader whose log ends before its snapshot begins it anew, whatever is kept.
	leads, from = true, 80
	begins(g.StoreLogs(entries(201, 210, 2)), 201)
	// And one that repeats an append of which a part was written replaces all of that.
	from = 203
	begins(g.StoreLogs(entries(206, 206, 3)), 201)
	if last, _ := g.LastIndex(); last != 206 {
		t.Errorf("the log ends at %d", last)
	}
	if to := g.keptTo.Load(); to != 0 {
		t.Errorf("what was kept up to %d would be deleted", to)
	}
}
