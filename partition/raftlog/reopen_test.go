package raftlog

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// refusingStore fails writes while the errors are set.
type refusingStore struct {
	Store

	store, del error
}

func (s *refusingStore) StoreLogs(entries []*raft.Log) error {
	if s.store != nil {
		return s.store
	}
	return s.Store.StoreLogs(entries)
}

func (s *refusingStore) DeleteRange(low, high uint64) error {
	if s.del != nil {
		return s.del
	}
	return s.Store.DeleteRange(low, high)
}

// watchedLog is the log of a group over a failing store. It counts how often the raft instance and the replica have to end.
type watchedLog struct {
	*Group

	store        *refusingStore
	leads        bool
	lost, failed int
}

func newWatchedLog(t *testing.T, kind Kind) *watchedLog {
	t.Helper()
	l := openTestLog(t, filepath.Join(t.TempDir(), "0.db"), kind)
	w := &watchedLog{store: &refusingStore{Store: l.store}}
	l.store = w.store
	w.Group = testGroup(t, l, 1)
	w.OnFailure(func(error) { w.failed++ }, func() { w.lost++ }, nil)
	w.SnapshotEnd(func() (index, term uint64) { return 0, 0 })
	w.reopen()
	w.must(t, w.StoreLogs(entries(1, 10, 5)))
	return w
}

// reopen begins a raft instance after the former one has ended.
func (w *watchedLog) reopen() {
	w.EndInstance()
	w.SetInstance(make(chan struct{}))
	w.SetLeader(func() bool { return w.leads })
}

func (w *watchedLog) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *watchedLog) check(t *testing.T, lost, failed int, held IndexRange) {
	t.Helper()
	if w.lost != lost || w.failed != failed {
		t.Errorf("%d instances and %d replicas ended, want %d and %d", w.lost, w.failed, lost, failed)
	}
	if diff := cmp.Diff(held, rangeOf(w.Group)); diff != "" {
		t.Error(diff)
	}
}

// TestFailedAppendAfterTruncationEndsTheInstance checks that an instance ends once whose last index is wrong, that it stores nothing
// more, and that the next instance does not end on a disk that is still full.
func TestFailedAppendAfterTruncationEndsTheInstance(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		w := newWatchedLog(t, kind)
		w.must(t, w.DeleteRange(9, 10))
		w.store.store = errNoSpace
		if err := w.StoreLogs(entries(9, 9, 6)); !errors.Is(err, errNoSpace) {
			t.Errorf("stored without space: %v", err)
		}
		w.store.store = nil
		// The leader that has the deleted entries continues behind them.
		if err := w.StoreLogs(entries(11, 11, 7)); !errors.Is(err, errNoSpace) {
			t.Errorf("stored by an instance that has to end: %v", err)
		}
		w.check(t, 1, 0, IndexRange{1, 8})
		w.reopen()
		w.store.store = errNoSpace
		for range 100 {
			if err := w.StoreLogs(entries(9, 9, 6)); !errors.Is(err, errNoSpace) {
				t.Fatalf("stored without space: %v", err)
			}
		}
		w.store.store = nil
		w.must(t, w.StoreLogs(entries(9, 9, 6)))
		w.check(t, 1, 0, IndexRange{1, 9})
	})
}

// TestFailedAppendAloneKeepsTheInstance checks that raft repeats an append that failed without a truncation, or after one behind
// which something was stored.
func TestFailedAppendAloneKeepsTheInstance(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		w := newWatchedLog(t, kind)
		w.must(t, w.DeleteRange(9, 10))
		w.must(t, w.StoreLogs(entries(9, 9, 6)))
		w.must(t, w.DeleteRange(1, 4)) // a compaction truncates nothing
		w.store.store = errNoSpace
		follower := []*raft.Log{{Index: 10, Term: 6, Type: raft.LogConfiguration}}
		for _, append := range [][]*raft.Log{entries(10, 10, 6), follower} {
			if err := w.StoreLogs(append); !errors.Is(err, errNoSpace) {
				t.Errorf("stored without space: %v", err)
			}
		}
		w.store.store = nil
		w.must(t, w.StoreLogs(entries(10, 10, 6)))
		w.check(t, 0, 0, IndexRange{5, 10})
	})
}

// TestFailedTruncationEndsTheInstance checks that a failed deletion of a suffix ends the instance, and that of a prefix does not.
func TestFailedTruncationEndsTheInstance(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		w := newWatchedLog(t, kind)
		w.store.del = errNoSpace
		for i, low := range []uint64{1, 9} {
			high := []uint64{4, 10}[i]
			if err := w.DeleteRange(low, high); !errors.Is(err, errNoSpace) {
				t.Errorf("deleted without space: %v", err)
			}
			w.check(t, i, 0, IndexRange{1, 10})
		}
	})
}

// TestFailedConfigurationEndsTheLeader checks that a leader ends whose configuration is not stored: raft uses it all the same.
func TestFailedConfigurationEndsTheLeader(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		w := newWatchedLog(t, kind)
		w.leads, w.store.store = true, errNoSpace
		if err := w.StoreLogs([]*raft.Log{{Index: 11, Term: 5, Type: raft.LogConfiguration}}); !errors.Is(err, errNoSpace) {
			t.Errorf("stored without space: %v", err)
		}
		w.check(t, 1, 0, IndexRange{1, 10})
	})
}

// TestGapIsClosedBehindASnapshotOnly checks that an append beyond the log deletes nothing that no snapshot covers: the instance ends,
// and the replica if the next instance makes the same append.
func TestGapIsClosedBehindASnapshotOnly(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		w := newWatchedLog(t, kind)
		for round := range 2 {
			if err := w.StoreLogs(entries(21, 21, 6)); !errors.Is(err, errGap) {
				t.Errorf("an append beyond the end: %v", err)
			}
			w.check(t, round+1, round, IndexRange{1, 10})
			w.reopen()
		}
		w.SnapshotEnd(func() (index, term uint64) { return 20, 1 })
		w.must(t, w.StoreLogs(entries(21, 21, 6)))
		w.check(t, 2, 1, IndexRange{21, 21})
	})
}

// TestBrokenDiskEndsInstanceAndReplica checks that an error other than a shortage halts the replica also after a truncation.
func TestBrokenDiskEndsInstanceAndReplica(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		w := newWatchedLog(t, kind)
		w.must(t, w.DeleteRange(9, 10))
		w.store.store = syscall.EIO
		if err := w.StoreLogs(entries(9, 9, 6)); !errors.Is(err, syscall.EIO) {
			t.Errorf("stored on a broken disk: %v", err)
		}
		w.check(t, 1, 1, IndexRange{1, 8})
	})
}
