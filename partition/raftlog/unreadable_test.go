package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// badPage is a disk on which a page of a file cannot be read.
type badPage struct {
	disk.OS

	path string
	at   int64
}

type badPageFile struct {
	disk.File

	at int64
}

func (d badPage) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(path, flag, mode)
	if err == nil && path == d.path {
		return badPageFile{f, d.at}, nil
	}
	return f, err
}

func (d badPage) ReadFile(path string) ([]byte, error) {
	if path == d.path {
		return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EIO}
	}
	return d.OS.ReadFile(path)
}

func (f badPageFile) ReadAt(b []byte, at int64) (int, error) {
	if at <= f.at && f.at < at+int64(len(b)) {
		return 0, &fs.PathError{Op: "read", Path: "a file", Err: syscall.EIO}
	}
	return f.File.ReadAt(b, at)
}

// openOn opens a stopped log on a disk and returns its values.
func openOn(t *testing.T, path string, files disk.FS) (map[string]string, error) {
	t.Helper()
	l, err := Open(Config{Path: path, Kind: Journal, SegmentBytes: 4096, FS: files, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	got := valuesOf(t, l)
	return got, l.Close()
}

// A file of terms and votes of which a page cannot be read is written again from its copy, before bbolt maps it. A copy that cannot be
// read harms nothing. With neither the start is refused with words.
func TestUnreadableValuesAreRestored(t *testing.T) {
	t.Parallel()
	_, killed, closed := stopLogs(t)
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	for name, s := range map[string]stoppedLog{"killed": killed, "closed": closed} {
		for page := range len(s.bolt) / os.Getpagesize() {
			for _, file := range []string{path, path + copySuffix} {
				what := fmt.Sprintf("%s, page %d of %s", name, page, filepath.Base(file))
				s.write(t, path)
				var once onceBad
				once.badPage = badPage{path: file, at: int64(page*os.Getpagesize() + 20)}
				got, err := openOn(t, path, &once)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if !maps.Equal(s.values, got) {
					t.Fatalf("%s: %s", what, cmp.Diff(s.values, got))
				}
			}
		}
	}
	closed.copy = nil
	closed.write(t, path)
	_, err := openOn(t, path, badPage{path: path, at: int64(2*os.Getpagesize() + 20)})
	if !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), "put back the file") {
		t.Errorf("without a copy: %v", err)
	}
}

// TestUnreadableBoltLogBeginsAnew: a page of a log without a journal that cannot be read costs the log its groups and not the
// start: each replica finds that it is not named any more. The file is kept.
func TestUnreadableBoltLogBeginsAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(kit.MemoryDir(t), "raft.db")
	open := func(files disk.FS) (*Log, *Group) {
		t.Helper()
		l, err := Open(Config{Path: path, Kind: Bolt, FS: files, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("open the log: %v", err)
		}
		g := kit.Must(l.Group(1))(t)
		return l, g
	}
	l, g := open(disk.OS{})
	kit.OK(t, errors.Join(g.SetOwner("m0.1"), l.Close()))
	content := kit.Must(os.ReadFile(path))(t)
	l, g = open(&onceBad{badPage: badPage{path: path, at: int64(os.Getpagesize() + 20)}})
	if name, err := g.Owner(); name != "" || err != nil {
		t.Errorf("the log that began anew names the replica %q (%v), want none", name, err)
	}
	kit.OK(t, l.Close())
	if kept, err := os.ReadFile(path + unreadableSuffix); err != nil || !bytes.Equal(kept, content) {
		t.Errorf("the file was not kept as it was: %d bytes (%v), want %d", len(kept), err, len(content))
	}
}

// unreadableStore fails so many reads of entries with an error.
type unreadableStore struct {
	Store

	left int
	err  error
}

func (s *unreadableStore) GetLog(index uint64, out *raft.Log) error {
	if s.left > 0 {
		s.left--
		return s.err
	}
	return s.Store.GetLog(index, out)
}

// TestUnreadableBoltEntryStopsItsReplica: raft would panic if it got the error. A read that fails once is repeated; an entry that
// cannot be read or decoded is damage, and one that is missing or read after the end of the log is not.
func TestUnreadableBoltEntryStopsItsReplica(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		err     error
		fails   int
		damaged bool
	}{
		{syscall.EIO, 1, false},
		{syscall.EIO, 2, true},
		{errors.New("decode the entry"), 1, true},
		{raft.ErrLogNotFound, 1, false},
		{bolterrors.ErrDatabaseNotOpen, 1, false},
		{&fs.PathError{Op: "read", Path: "raft.db", Err: fs.ErrClosed}, 1, false},
	} {
		path := filepath.Join(kit.MemoryDir(t), "raft.db")
		l := openTestLog(t, path, Bolt)
		kit.OK(t, errors.Join(testGroup(t, l, 1).StoreLogs(entries(1, 3, 1)), l.Close()))
		l = openTestLog(t, path, Bolt) // with no entry in its cache
		store := &unreadableStore{left: x.fails, err: x.err}
		l.WrapStore(func(inner Store) Store { store.Store = inner; return store })
		g := testGroup(t, l, 1)
		var stopped error
		g.OnFailure(func(err error) { stopped = err }, nil, nil)
		g.SetInstance(make(chan struct{}))
		returned, done := false, make(chan struct{})
		go func() {
			defer close(done)
			_ = g.GetLog(2, new(raft.Log))
			returned = true
		}()
		<-done
		if errors.Is(stopped, ErrDamaged) != x.damaged || returned == x.damaged {
			t.Errorf("after %d times %q the replica was stopped with %v, and raft got an answer: %t; want damage: %t", x.fails, x.err, stopped, returned, x.damaged)
		}
	}
}

// onceBad is a bad page of a file until the file is replaced.
type onceBad struct {
	badPage

	replaced bool
}

func (d *onceBad) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if d.replaced {
		return d.OS.OpenFile(path, flag, mode)
	}
	return d.badPage.OpenFile(path, flag, mode)
}

// Rename ends the fault of a file that is replaced: the new one is elsewhere on the disk.
func (d *onceBad) Rename(from, to string) error {
	d.replaced = d.replaced || to == d.path || from == d.path
	return d.OS.Rename(from, to)
}

// A page that bbolt cannot read from the mapped file ends the process with words, also if it holds entries.
func TestUnreadableMappedPageIsExplained(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(Store) error{
		"Set":         func(s Store) error { return s.Set([]byte("a"), []byte("c")) },
		"GetLog":      func(s Store) error { return s.GetLog(1, new(raft.Log)) },
		"StoreLogs":   func(s Store) error { return s.StoreLogs([]*raft.Log{{Index: 2}}) },
		"DeleteRange": func(s Store) error { return s.DeleteRange(1, 1) },
	} {
		path := filepath.Join(t.TempDir(), "raft.db")
		store, _, err := openBolt(&Config{Path: path, FS: disk.OS{}, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = store.StoreLogs([]*raft.Log{{Index: 1, Data: []byte("b")}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 0); err != nil { // the mapped pages are gone, as bad ones
			t.Fatal(err)
		}
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "start the member again") {
					t.Errorf("%s ended with %q", name, said)
				}
			}()
			t.Errorf("%s returned: %v", name, call(store))
		}()
	}
}
