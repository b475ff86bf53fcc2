package raftlog

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/entrysum"
	"github.com/peeklock/peeklock/test/kit"
)

// A log is opened as the kind that it was created with: as the other one it would look empty.
func TestLogKeepsItsKind(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		path := filepath.Join(t.TempDir(), "raft.db")
		l := openTestLog(t, path, kind)
		kit.OK(t, errors.Join(testGroup(t, l, 1).StoreLogs(entries(1, 5, 1)), l.Close()))
		other := map[Kind]Kind{Bolt: Journal, Journal: Bolt}[kind]
		if _, err := Open(Config{Path: path, Kind: other, Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, ErrOtherKind) {
			t.Errorf("%s opened as %s: %v", kind, other, err)
		}
		l = openTestLog(t, path, kind)
		if got := rangeOf(testGroup(t, l, 1)); got != (IndexRange{1, 5}) {
			t.Errorf("got entries %+v, want 1 to 5", got)
		}
	})
}

// The journal and the file beside it name each other: neither is used with another one, or alone.
func TestJournalBelongsToItsLog(t *testing.T) {
	t.Parallel()
	var dirs []string
	for range 2 {
		dir := t.TempDir()
		l := openTestLog(t, filepath.Join(dir, "raft.db"), Journal)
		kit.OK(t, errors.Join(testGroup(t, l, 1).StoreLogs(entries(1, 5, 1)), l.Close()))
		dirs = append(dirs, dir)
	}
	open := func() error {
		l, err := Open(Config{Path: filepath.Join(dirs[0], "raft.db"), Kind: Journal, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = l.Close()
			t.Error("opened")
		}
		return err
	}
	folder := filepath.Join(dirs[0], JournalFolder)
	kit.OK(t, os.Rename(folder, folder+".kept"))
	if err := open(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its journal: %v", err)
	}
	kit.OK(t, errors.Join(os.Rename(filepath.Join(dirs[1], JournalFolder), folder)))
	if err := open(); err == nil {
		t.Error("a log was opened with another journal")
	}
	kit.OK(t, errors.Join(os.Remove(filepath.Join(dirs[0], "raft.db")), os.RemoveAll(folder), os.Rename(folder+".kept", folder)))
	if err := open(); err == nil {
		t.Error("a journal without its file was opened")
	}
}

// An entry comes back as raft stored it.
func TestLogKeepsAllFieldsOfAnEntry(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		path := filepath.Join(t.TempDir(), "raft.db")
		l := openTestLog(t, path, kind)
		want := raft.Log{
			Index: 7, Term: 3, Type: raft.LogConfiguration, Data: []byte("data"), Extensions: entrysum.Append(nil, []byte("data")), AppendedAt: time.Unix(5, 6),
		}
		kit.OK(t, errors.Join(testGroup(t, l, 9).StoreLog(&want), l.Close()))
		var got raft.Log
		kit.OK(t, testGroup(t, openTestLog(t, path, kind), 9).GetLog(7, &got))
		if kind == Bolt {
			want.Extensions = nil // a journal verifies it, raft-boltdb does not
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// The checksum with which an entry comes is stored, so data that has changed on the way to the disk is found when it is read.
func TestLogStoresTheChecksumOfAnEntry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "raft.db")
	l := openTestLog(t, path, Journal)
	changed := raft.Log{Index: 1, Term: 1, Data: []byte("datA"), Extensions: entrysum.Append(nil, []byte("data"))}
	kit.OK(t, errors.Join(testGroup(t, l, 9).StoreLog(&changed), l.Close()))
	if err := testGroup(t, openTestLog(t, path, Journal), 9).GetLog(1, new(raft.Log)); !errors.Is(err, ErrDamaged) {
		t.Errorf("read with %v, want damage", err)
	}
}

// A damaged entry stops its group and no other one: it does not open, and its data can be dropped.
func TestDamagedEntryStopsItsGroup(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "raft.db")
	l := openTestLog(t, path, Journal)
	for _, id := range []fsm.PartitionID{1, 2} {
		e := raft.Log{Index: 1, Term: 1, Data: []byte{byte(id), 1, 2, 3}}
		kit.OK(t, testGroup(t, l, id).StoreLog(&e))
	}
	kit.OK(t, errors.Join(testGroup(t, l, 2).StoreLogs(entries(2, 3, 1)), l.Close()))
	segments, err := filepath.Glob(filepath.Join(filepath.Dir(path), JournalFolder, "*"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	const firstData = 512 + 64 + 48
	kit.FlipBit(t, segments[0], firstData)
	l = openTestLog(t, path, Journal)
	damaged, whole := testGroup(t, l, 1), testGroup(t, l, 2)
	if err := whole.Reconcile(1, 1); err != nil {
		t.Error(err)
	}
	if err := damaged.Reconcile(1, 1); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("a damaged group: %v", err)
	}
	stopped := make(chan error, 1)
	damaged.OnFailure(func(err error) { stopped <- err }, nil, nil)
	damaged.SetInstance(make(chan struct{}))
	go func() { _ = damaged.GetLog(1, new(raft.Log)) }()
	if err := <-stopped; !errors.Is(err, disk.ErrDamaged) {
		t.Error(err)
	}
	kit.OK(t, l.Forget(1))
	if err := testGroup(t, l, 1).Reconcile(0, 0); err != nil {
		t.Error(err)
	}
}

// A batch that cannot be read and may have been confirmed is kept until an operator cuts it. Then the group has what was
// confirmed before it.
func TestUndecidedBatchIsCutOnRequest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	l := openTestLog(t, path, Journal)
	for i := uint64(1); i <= 2; i++ {
		kit.OK(t, testGroup(t, l, 1).StoreLogs(entries(i, i, 1)))
	}
	killed := readStopped(t, path, nil)
	const secondBatch, firstRecord, sector = 2 * 512, 64, 512
	for _, segment := range killed.journal {
		segment[secondBatch+firstRecord+8] ^= 1 // its index
		clear(segment[secondBatch+sector:])     // a mark that says that it was confirmed
	}
	path = filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	killed.write(t, path)
	checkOpen := func(want error) {
		t.Helper()
		l := openTestLog(t, path, Journal)
		if err := testGroup(t, l, 1).Reconcile(0, 0); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if got := rangeOf(testGroup(t, l, 1)); got != (IndexRange{1, 1}) {
			t.Errorf("got entries %+v, want 1 to 1", got)
		}
		kit.OK(t, l.Close())
	}
	checkOpen(disk.ErrDamaged)
	for _, want := range []bool{true, false} {
		if cut, err := CutUndecided(Config{Path: path, SegmentBytes: testSegmentBytes}); cut != want || err != nil {
			t.Errorf("got %t, %v, want %t", cut, err, want)
		}
		checkOpen(nil)
	}
}
