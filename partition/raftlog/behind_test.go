package raftlog

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// gatedStore lets the test end each write of entries, with an error or nil, while it is shut.
type gatedStore struct {
	Store

	shut atomic.Bool
	pass chan error
}

func (s *gatedStore) StoreLogs(entries []*raft.Log) error {
	if s.shut.Load() {
		if err := <-s.pass; err != nil {
			return err
		}
	}
	return s.Store.StoreLogs(entries)
}

// leaderLog is a log over a gated store, with a group whose replica leads and has one entry.
type leaderLog struct {
	*Log
	*Group

	store        *gatedStore
	leads        atomic.Bool
	closed       chan struct{} // ends the raft instance
	lost, failed atomic.Int32  // calls
}

// withLeaderLog runs a test with such a log of each kind, in virtual time, so that it can tell what waits. Afterwards the
// log on disk must have the entries up to the last one.
func withLeaderLog(t *testing.T, last uint64, test func(t *testing.T, l *leaderLog)) {
	t.Helper()
	eachKind(t, func(t *testing.T, kind Kind) {
		path := filepath.Join(t.TempDir(), "0.db")
		synctest.Test(t, func(t *testing.T) {
			l := &leaderLog{Log: openTestLog(t, path, kind), closed: make(chan struct{})}
			l.store = &gatedStore{Store: l.Log.store, pass: make(chan error)}
			l.Log.store = l.store
			l.Group = l.lead(t, 1)
			l.store.shut.Store(true)
			test(t, l)
			l.store.shut.Store(false)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			again := openTestLog(t, path, kind)
			if diff := cmp.Diff(IndexRange{1, last}, rangeOf(testGroup(t, again, 1))); diff != "" {
				t.Error(diff)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// lead returns the log of a group whose replica leads while leads is set.
func (l *leaderLog) lead(t *testing.T, id fsm.PartitionID) *Group {
	t.Helper()
	g := testGroup(t, l.Log, id)
	g.OnFailure(func(error) { l.failed.Add(1) }, func() { l.lost.Add(1) }, nil)
	g.SetInstance(l.closed)
	g.SetLeader(l.leads.Load)
	l.leads.Store(true)
	kit.OK(t, g.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Type: raft.LogNoop}}))
	return g
}

// storeEach appends entries one by one: the first is in a transaction when the others are queued.
func (l *leaderLog) storeEach(t *testing.T, from, to uint64) {
	t.Helper()
	for i := from; i <= to; i++ {
		kit.OK(t, l.StoreLogs(entries(i, i, 1)))
		synctest.Wait()
	}
}

// begun runs f on a goroutine and returns what it returns; nothing yet if f waits for something.
func begun(f func() error) chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	synctest.Wait()
	return end
}

func isWaiting(t *testing.T, end chan error, what string) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-end:
		t.Errorf("%s did not wait: %v", what, err)
	default:
	}
}

// TestLeaderGoesOnBeforeItsCommandsAreOnDisk checks what a leader gets from StoreLogs, and what waits for the disk.
func TestLeaderGoesOnBeforeItsCommandsAreOnDisk(t *testing.T) {
	t.Parallel()
	withLeaderLog(t, 4, func(t *testing.T, l *leaderLog) {
		l.storeEach(t, 2, 3)
		var e raft.Log
		if err := l.GetLog(3, &e); err != nil || string(e.Data) != "entry 3" {
			t.Errorf("%q, %v", e.Data, err)
		}
		apply := begun(func() error { l.AwaitStored(3); return nil })
		isWaiting(t, apply, "the state machine")
		if n := l.Stored(); n != 1 {
			t.Errorf("stored up to %d", n)
		}
		configuration := begun(func() error { return l.StoreLogs([]*raft.Log{{Index: 4, Term: 1, Type: raft.LogConfiguration}}) })
		l.store.pass <- nil
		isWaiting(t, apply, "the state machine")
		if n := l.Stored(); n != 2 {
			t.Errorf("stored up to %d", n)
		}
		l.store.pass <- nil
		isWaiting(t, configuration, "a configuration")
		if err := <-apply; err != nil || l.Stored() < 3 {
			t.Error(err)
		}
		l.store.pass <- nil
		if err := <-configuration; err != nil {
			t.Error(err)
		}
	})
}

// TestWritesBehindAreBounded checks that a leader waits for its disk when behindBytesMax are on their way.
func TestWritesBehindAreBounded(t *testing.T) {
	t.Parallel()
	withLeaderLog(t, 3, func(t *testing.T, l *leaderLog) {
		large := func(index uint64) []*raft.Log {
			return []*raft.Log{{Index: index, Term: 1, Data: make([]byte, behindBytesMax/2)}}
		}
		kit.OK(t, l.StoreLogs(large(2)))
		next := begun(func() error { return l.StoreLogs(large(3)) })
		isWaiting(t, next, "a second large entry")
		l.store.pass <- nil
		isWaiting(t, next, "a second large entry") // for its own write
		l.store.pass <- nil
		if err := <-next; err != nil {
			t.Error(err)
		}
	})
}

// TestFormerLeaderAnswersWithWhatIsOnDisk checks that a replica that led a moment ago confirms entries to the next leader when they
// are on its disk.
func TestFormerLeaderAnswersWithWhatIsOnDisk(t *testing.T) {
	t.Parallel()
	withLeaderLog(t, 3, func(t *testing.T, l *leaderLog) {
		kit.OK(t, l.StoreLogs(entries(2, 2, 1)))
		l.leads.Store(false)
		has := begun(func() error { return l.GetLog(2, new(raft.Log)) })
		appends := begun(func() error { return l.StoreLogs(entries(3, 3, 2)) })
		isWaiting(t, has, "the confirmation of an entry")
		isWaiting(t, appends, "an append")
		l.store.pass <- nil
		if err := <-has; err != nil {
			t.Error(err)
		}
		l.store.pass <- nil
		if err := <-appends; err != nil {
			t.Error(err)
		}
	})
}

// TestFormerLeaderDeletesWhatItHasNotWritten checks that the next leader's entries replace those that are being written.
func TestFormerLeaderDeletesWhatItHasNotWritten(t *testing.T) {
	t.Parallel()
	withLeaderLog(t, 2, func(t *testing.T, l *leaderLog) {
		l.storeEach(t, 2, 3)
		l.leads.Store(false)
		deletion := begun(func() error { return l.DeleteRange(3, 3) })
		isWaiting(t, deletion, "a deletion")
		l.store.pass <- nil
		l.store.pass <- nil
		if err := <-deletion; err != nil {
			t.Error(err)
		}
	})
}

// TestFailedWriteBehindEndsTheInstance checks that nothing is written behind an entry that could not be written, that the
// raft instance has to end, and that the log continues afterwards where the disk ends. Other groups go on.
func TestFailedWriteBehindEndsTheInstance(t *testing.T) {
	t.Parallel()
	withLeaderLog(t, 3, func(t *testing.T, l *leaderLog) {
		l.store.shut.Store(false)
		other := l.lead(t, 2)
		l.store.shut.Store(true)
		l.storeEach(t, 2, 5)
		l.store.pass <- nil        // 2
		l.store.pass <- errNoSpace // 3, 4 and 5
		apply := begun(func() error { l.AwaitStored(3); return nil })
		isWaiting(t, apply, "the state machine")
		if err := l.StoreLogs(entries(6, 6, 1)); !disk.IsNoSpace(err) {
			t.Errorf("the next entries: %v", err)
		}
		if l.lost.Load() != 1 || l.failed.Load() != 0 {
			t.Errorf("%d lost, %d failed", l.lost.Load(), l.failed.Load())
		}
		if err := other.StoreLogs(entries(2, 2, 1)); err != nil {
			t.Error(err)
		}
		l.store.pass <- nil
		close(l.closed)
		isWaiting(t, apply, "the state machine") // its goroutine has ended
		l.EndInstance()
		if diff := cmp.Diff(IndexRange{1, 2}, rangeOf(l.Group)); diff != "" {
			t.Error(diff)
		}
		if err := l.GetLog(3, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("an entry that was not written: %v", err)
		}
		l.SetInstance(make(chan struct{}))
		after := begun(func() error { return l.StoreLogs(entries(3, 3, 2)) })
		l.store.pass <- nil
		if err := <-after; err != nil {
			t.Error(err)
		}
	})
}

// TestEndsOfWritesInAnyOrder checks that a log knows what is on its disk, and where it ends, when the ends of two writes are reported in
// the wrong order: whoever has run a transaction lets the next one begin before it reports the end of its own.
func TestEndsOfWritesInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		first        bool  // the end of the first write is reported first
		second       error // of the second write
		between, end uint64
		last         uint64 // of the log that the next instance gets
	}{
		{"in order", true, nil, 2, math.MaxUint64 - 1, 3},
		{"the second first", false, nil, 3, math.MaxUint64 - 1, 3},
		{"the second fails", true, errNoSpace, 2, 2, 2},
		{"the second fails and is first", false, errNoSpace, 1, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := testGroup(t, openTestLog(t, filepath.Join(t.TempDir(), "0.db"), Bolt), 1)
			g.OnFailure(func(error) {}, func() {}, nil)
			kit.OK(t, g.StoreLogs(entries(1, 1, 1)))
			var writes [2]*logWrite
			for i := range writes { // as storeBehind does
				index := uint64(i + 2)
				w := kit.Must(g.newWrite(entries(index, index, 1)))(t)
				writes[i] = w
				g.mu.Lock()
				g.behind.writes++
				g.behind.bytes += w.bytes
				g.added(entries(index, index, 1))
				g.mu.Unlock()
			}
			g.behind.from = 2
			g.storedBelow.Store(2)
			writes[1].err = c.second
			if !c.first {
				slices.Reverse(writes[:])
			}
			g.wrote(writes[0])
			if n := g.Stored(); n != c.between {
				t.Errorf("after the first report, stored up to %d, not %d", n, c.between)
			}
			g.wrote(writes[1])
			if n := g.Stored(); n != c.end {
				t.Errorf("after both reports, stored up to %d, not %d", n, c.end)
			}
			g.EndInstance()
			if held := rangeOf(g); held.Last != c.last || g.behind.bytes != 0 || g.Stored() != math.MaxUint64-1 {
				t.Errorf("the log ends at %d, %d bytes are open, stored up to %d", held.Last, g.behind.bytes, g.Stored())
			}
		})
	}
}

// TestBrokenDiskStopsTheLeader checks that a leader stops that cannot tell what is on its disk.
func TestBrokenDiskStopsTheLeader(t *testing.T) {
	t.Parallel()
	withLeaderLog(t, 1, func(t *testing.T, l *leaderLog) {
		kit.OK(t, l.StoreLogs(entries(2, 2, 1)))
		l.store.pass <- syscall.EIO
		synctest.Wait()
		if l.failed.Load() != 1 {
			t.Errorf("%d failures", l.failed.Load())
		}
		close(l.closed)
		l.EndInstance()
	})
}
