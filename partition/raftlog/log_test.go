package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// eachKind runs a test on a log of each kind.
func eachKind(t *testing.T, test func(t *testing.T, kind Kind)) {
	t.Helper()
	for _, kind := range []Kind{Bolt, Journal} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// testSegmentBytes is the size of the segments of journals in tests, so that they have several.
const testSegmentBytes = 64 << 10

func openTestLog(t *testing.T, path string, kind Kind) *Log {
	t.Helper()
	l := kit.Must(Open(Config{Path: path, Kind: kind, SegmentBytes: testSegmentBytes, Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func testGroup(t *testing.T, l *Log, id fsm.PartitionID) *Group {
	t.Helper()
	g := kit.Must(l.Group(id))(t)
	return g
}

func entries(from, to, term uint64) []*raft.Log {
	var list []*raft.Log
	for i := from; i <= to; i++ {
		list = append(list, &raft.Log{Index: i, Term: term, Data: fmt.Appendf(nil, "entry %d", i)})
	}
	return list
}

func rangeOf(g *Group) IndexRange {
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	return IndexRange{first, last}
}

// checkKeys checks how many keys the file of a bolt log holds.
func checkKeys(t *testing.T, path string, kind Kind, want int) {
	t.Helper()
	if kind != Bolt {
		return
	}
	db := kit.Must(bbolt.Open(path, disk.FileMode, &bbolt.Options{ReadOnly: true}))(t)
	n := 0
	_ = db.View(func(tx *bbolt.Tx) error {
		n = tx.Bucket([]byte("logs")).Stats().KeyN
		return nil
	})
	kit.OK(t, db.Close())
	if n != want {
		t.Errorf("%d keys in the file, want %d", n, want)
	}
}

func TestLogHoldsManyGroups(t *testing.T) {
	t.Parallel()
	eachKind(t, testLogHoldsManyGroups)
}

func testLogHoldsManyGroups(t *testing.T, kind Kind) {
	path := filepath.Join(t.TempDir(), "log", "0.db")
	l := openTestLog(t, path, kind)
	const groups, each = 64, 20
	var wg sync.WaitGroup
	for id := range fsm.PartitionID(groups) {
		g := testGroup(t, l, id)
		wg.Go(func() {
			for i := uint64(1); i <= each; i++ {
				if err := g.StoreLogs(entries(i, i, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := l.Stats()
	if s.Entries != groups*each || s.Commits > s.Entries {
		t.Errorf("%d entries in %d commits", s.Entries, s.Commits)
	}
	t.Logf("%.1f entries a commit", float64(s.Entries)/float64(s.Commits))
	// A restart finds the same.
	kit.OK(t, l.Close())
	l = openTestLog(t, path, kind)
	for id := range fsm.PartitionID(groups) {
		g := testGroup(t, l, id)
		if diff := cmp.Diff(IndexRange{1, each}, rangeOf(g)); diff != "" {
			t.Fatal(diff)
		}
		var e raft.Log
		if err := g.GetLog(7, &e); err != nil || e.Index != 7 || string(e.Data) != "entry 7" {
			t.Fatalf("%v %+v", err, e)
		}
	}
}

func TestLogDeletesRanges(t *testing.T) {
	t.Parallel()
	eachKind(t, testLogDeletesRanges)
}

func testLogDeletesRanges(t *testing.T, kind Kind) {
	tests := []struct {
		name      string
		low, high uint64
		want      IndexRange
	}{
		{"front", 1, 700, IndexRange{701, 1500}},
		{"end", 200, 1500, IndexRange{1, 199}},
		{"all", 1, 1500, IndexRange{}},
		{"more than there is", 0, 9999, IndexRange{}},
		{"nothing", 1501, 1600, IndexRange{1, 1500}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "0.db")
			l := openTestLog(t, path, kind)
			other := testGroup(t, l, 4)
			g := testGroup(t, l, 5)
			for _, x := range []*Group{other, g, testGroup(t, l, 6)} {
				kit.OK(t, x.StoreLogs(entries(1, 1500, 1)))
			}
			kit.OK(t, g.DeleteRange(tt.low, tt.high))
			check := func(g *Group) {
				t.Helper()
				if diff := cmp.Diff(tt.want, rangeOf(g)); diff != "" {
					t.Error(diff)
				}
				for i := range uint64(1502) {
					var e raft.Log
					err := g.GetLog(i, &e)
					if held := i >= tt.want.First && i <= tt.want.Last && i > 0; held != (err == nil) {
						t.Fatalf("entry %d: %v", i, err)
					}
				}
			}
			check(g)
			kit.OK(t, l.Close())
			want := 3000
			if tt.want.Last > 0 {
				want += int(tt.want.Last - tt.want.First + 1)
			}
			checkKeys(t, path, kind, want)
			l = openTestLog(t, path, kind)
			check(testGroup(t, l, 5))
			if diff := cmp.Diff(IndexRange{1, 1500}, rangeOf(testGroup(t, l, 4))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLogRefusesHoles(t *testing.T) {
	t.Parallel()
	eachKind(t, testLogRefusesHoles)
}

func testLogRefusesHoles(t *testing.T, kind Kind) {
	l := openTestLog(t, filepath.Join(t.TempDir(), "0.db"), kind)
	g := testGroup(t, l, 1)
	kit.OK(t, g.StoreLogs(entries(1, 10, 1)))
	if err := g.DeleteRange(3, 5); err == nil {
		t.Error("a hole was made")
	}
	// After a snapshot from the leader raft continues behind it; older entries are dropped.
	kit.OK(t, g.StoreLogs(entries(100, 101, 2)))
	if diff := cmp.Diff(IndexRange{100, 101}, rangeOf(g)); diff != "" {
		t.Error(diff)
	}
	if err := g.StoreLogs([]*raft.Log{{Index: IndexMax + 1}}); err == nil {
		t.Error("an index beyond the range of a group was taken")
	}
	if _, err := l.Group(groupMax + 1); err == nil {
		t.Error("a group beyond the range was taken")
	}
}

func TestVoteIsWrittenAsOneValue(t *testing.T) {
	t.Parallel()
	eachKind(t, testVoteIsWrittenAsOneValue)
}

func testVoteIsWrittenAsOneValue(t *testing.T, kind Kind) {
	path := filepath.Join(t.TempDir(), "0.db")
	l := openTestLog(t, path, kind)
	g := testGroup(t, l, 3)
	if _, err := g.GetUint64([]byte(raftKeyVoteTerm)); err == nil || err.Error() != "not found" {
		t.Fatalf("raft wants this very error: %v", err)
	}
	vote := func(term uint64, cand string) {
		kit.OK(t, g.SetUint64([]byte(raftKeyVoteTerm), term))
		if cand == "" {
			return
		}
		kit.OK(t, g.Set([]byte(raftKeyVoteCand), []byte(cand)))
	}
	vote(5, "a")
	vote(6, "") // the process dies between the two writes
	kit.OK(t, l.Close())
	l = openTestLog(t, path, kind)
	g = testGroup(t, l, 3)
	term, err := g.GetUint64([]byte(raftKeyVoteTerm))
	cand, err2 := g.Get([]byte(raftKeyVoteCand))
	if err != nil || err2 != nil || term != 5 || string(cand) != "a" {
		t.Errorf("term %d candidate %q, %v %v", term, cand, err, err2)
	}
	if err := g.Set([]byte(raftKeyVoteCand), []byte("b")); err == nil {
		t.Error("a candidate without a term was taken")
	}
}

func TestLogForgetsAGroup(t *testing.T) {
	t.Parallel()
	eachKind(t, testLogForgetsAGroup)
}

func testLogForgetsAGroup(t *testing.T, kind Kind) {
	l := openTestLog(t, filepath.Join(t.TempDir(), "0.db"), kind)
	g := testGroup(t, l, 3)
	kit.OK(t, errors.Join(g.StoreLogs(entries(1, 5, 1)), g.SetUint64([]byte(keyTerm), 9)))
	kit.OK(t, l.Forget(3))
	g = testGroup(t, l, 3)
	if has, err := raft.HasExistingState(g, g, raft.NewInmemSnapshotStore()); has || err != nil {
		t.Errorf("state is left: %v %v", has, err)
	}
}

func TestLogIsHeldByOneProcess(t *testing.T) {
	t.Parallel()
	eachKind(t, testLogIsHeldByOneProcess)
}

func testLogIsHeldByOneProcess(t *testing.T, kind Kind) {
	path := filepath.Join(t.TempDir(), "0.db")
	openTestLog(t, path, kind)
	_, err := Open(Config{Path: path, Kind: kind, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("second open: %v", err)
	}
}

func TestEntryCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := entryCache{total: new(atomic.Int64)}
	data := make([]byte, 64<<10)
	for i := uint64(1); i <= 100; i++ {
		c.add(&raft.Log{Index: i, Data: data})
		if c.bytes > entryCacheBytesMax {
			t.Fatalf("%d bytes", c.bytes)
		}
	}
	var e raft.Log
	if !c.get(100, &e) || c.get(1, &e) || c.get(101, &e) {
		t.Error("the newest should be there, the oldest gone")
	}
	c.dropFrom(90)
	if c.get(90, &e) || !c.get(89, &e) || e.Index != 89 {
		t.Error("drop from 90")
	}
	c.add(&raft.Log{Index: 90, Term: 2})
	if !c.get(90, &e) || e.Term != 2 {
		t.Error("an entry that was replaced")
	}
	c.add(&raft.Log{Index: 200})
	if c.get(90, &e) || !c.get(200, &e) || len(c.entries) != 1 {
		t.Error("a gap empties the cache")
	}
	if total := c.total.Load(); total != int64(c.bytes) {
		t.Errorf("counted %d bytes of %d", total, c.bytes)
	}
}

// TestCachesOfAllGroupsAreBounded checks that many groups keep no more entries in memory than few, that idle groups give
// way to busy ones, and that what was dropped is read from the log.
func TestCachesOfAllGroupsAreBounded(t *testing.T) {
	t.Parallel()
	eachKind(t, testCachesOfAllGroupsAreBounded)
}

func testCachesOfAllGroupsAreBounded(t *testing.T, kind Kind) {
	l := openTestLog(t, filepath.Join(kit.MemoryDir(t), "raft.db"), kind)
	const groups, entries = 16, 12
	data := make([]byte, 100<<10)
	appendTo := func(id fsm.PartitionID, from, to uint64) *Group {
		g := kit.Must(l.Group(id))(t)
		for i := from; i <= to; i++ {
			kit.OK(t, g.StoreLog(&raft.Log{Index: i, Term: 1, Data: data}))
			if cached := l.cached.Load(); cached > logCacheBytesMax {
				t.Fatalf("%d bytes are cached", cached)
			}
		}
		return g
	}
	for id := range fsm.PartitionID(groups) {
		appendTo(id+1, 1, entries)
	}
	busy := appendTo(1, entries+1, 100)
	if busy.cache.bytes < entryCacheBytesMax/2 {
		t.Errorf("the only busy group has %d bytes", busy.cache.bytes)
	}
	sum := 0
	for id := range fsm.PartitionID(groups) {
		g := appendTo(id+1, 1, 0)
		sum += g.cache.bytes
		var e raft.Log
		if err := g.GetLog(1, &e); err != nil || len(e.Data) != len(data) {
			t.Errorf("group %d: %v", id+1, err)
		}
	}
	if cached := l.cached.Load(); cached != int64(sum) {
		t.Errorf("counted %d bytes of %d", cached, sum)
	}
}

// errNoSpace is the error of a write to a full disk.
var errNoSpace error = &fs.PathError{Op: "write", Path: "0.db", Err: syscall.ENOSPC}

// fullStore fails deletions with an error, if it is set.
type fullStore struct {
	Store

	err error
}

func (s *fullStore) DeleteRange(low, high uint64) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.DeleteRange(low, high)
}

// pieceStore records the size of each transaction, and fails with a full disk after some.
type pieceStore struct {
	Store

	sizes []int
	left  int // transactions that succeed; negative: all
}

func (s *pieceStore) StoreLogs(entries []*raft.Log) error {
	if s.left == 0 {
		return errNoSpace
	}
	s.left--
	size := 0
	for _, e := range entries {
		size += len(e.Data)
	}
	s.sizes = append(s.sizes, size)
	return s.Store.StoreLogs(entries)
}

// The appends of one group are written in pieces, so that the other groups of the member do not wait for all
// of them: a replica that catches up appends tens of MiB. An append of which only some pieces were written
// leaves nothing behind when it is repeated, even with other entries.
func TestLogAppendsInPieces(t *testing.T) {
	t.Parallel()
	eachKind(t, testLogAppendsInPieces)
}

func testLogAppendsInPieces(t *testing.T, kind Kind) {
	path := filepath.Join(t.TempDir(), "0.db")
	l := openTestLog(t, path, kind)
	store := &pieceStore{Store: l.store, left: -1}
	l.store = store
	g := testGroup(t, l, 1)
	large := func(from, to, term uint64) []*raft.Log {
		list := entries(from, to, term)
		for _, e := range list {
			e.Data = bytes.Repeat([]byte{byte(term)}, 400<<10)
		}
		return list
	}
	kit.OK(t, g.StoreLogs(append(large(1, 10, 1), &raft.Log{Index: 11, Term: 1, Data: make([]byte, 2*logAppendBytesMax)})))
	if diff := cmp.Diff([]int{800 << 10, 800 << 10, 800 << 10, 800 << 10, 800 << 10, 2 * logAppendBytesMax}, store.sizes); diff != "" {
		t.Error(diff)
	}
	store.left = 1
	if err := g.StoreLogs(large(12, 15, 1)); !disk.IsNoSpace(err) {
		t.Errorf("of a store that fails: %v", err)
	}
	store.left = -1
	kit.OK(t, g.StoreLogs(large(12, 12, 2)))
	if diff := cmp.Diff(IndexRange{1, 12}, rangeOf(g)); diff != "" {
		t.Error(diff)
	}
	var e raft.Log
	if err := g.GetLog(12, &e); err != nil || e.Term != 2 {
		t.Errorf("entry of term %d, %v", e.Term, err)
	}
	kit.OK(t, l.Close())
	checkKeys(t, path, kind, 12)
}

// A log whose entry at the index of the snapshot has another term was never committed from there on, and is
// dropped; one that begins too late is damaged.
func TestLogThatContradictsTheSnapshotIsDropped(t *testing.T) {
	t.Parallel()
	eachKind(t, testLogThatContradictsTheSnapshotIsDropped)
}

func testLogThatContradictsTheSnapshotIsDropped(t *testing.T, kind Kind) {
	l := openTestLog(t, filepath.Join(t.TempDir(), "0.db"), kind)
	g := testGroup(t, l, 1)
	kit.OK(t, g.StoreLogs(entries(1, 60, 2)))
	if err := g.Reconcile(30, 2); err != nil || rangeOf(g).Last != 60 {
		t.Errorf("a log that fits: %v %+v", err, rangeOf(g))
	}
	if err := g.Reconcile(30, 3); err != nil || rangeOf(g) != (IndexRange{}) {
		t.Errorf("a log that contradicts: %v %+v", err, rangeOf(g))
	}
	kit.OK(t, g.StoreLogs(entries(100, 101, 3)))
	if err := g.Reconcile(30, 3); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("a log with a hole: %v", err)
	}
	if err := g.Reconcile(99, 3); err != nil || rangeOf(g).First != 100 {
		t.Errorf("a log that begins right behind the snapshot: %v %+v", err, rangeOf(g))
	}
	if err := g.Reconcile(0, 0); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("a log without its snapshot: %v", err)
	}
}

// A failed deletion is reverted in memory too: otherwise raft would write behind entries that a restart finds
// again.
func TestFailedDeletionIsReverted(t *testing.T) {
	t.Parallel()
	eachKind(t, testFailedDeletionIsReverted)
}

func testFailedDeletionIsReverted(t *testing.T, kind Kind) {
	path := filepath.Join(t.TempDir(), "0.db")
	l := openTestLog(t, path, kind)
	store := &fullStore{Store: l.store}
	l.store = store
	for _, x := range []struct {
		name      string
		low, high uint64
	}{{"front", 1, 700}, {"end", 300, 2000}, {"all", 1, 2000}} {
		g := testGroup(t, l, fsm.PartitionID(len(x.name)))
		kit.OK(t, g.StoreLogs(entries(1, 2000, 1)))
		store.err = errNoSpace
		if err := g.DeleteRange(x.low, x.high); !disk.IsNoSpace(err) {
			t.Errorf("%s: %v", x.name, err)
		}
		if got := rangeOf(g); got != (IndexRange{1, 2000}) {
			t.Errorf("%s: %+v", x.name, got)
		}
		store.err = nil
		if err := g.DeleteRange(x.low, x.high); err != nil {
			t.Error(err)
		}
		var e raft.Log
		if err := g.GetLog(x.low, &e); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
