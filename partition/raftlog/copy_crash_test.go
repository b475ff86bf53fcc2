package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// content is the content of a file. Zeros at its end are not held.
type content struct {
	data   []byte
	length int64
}

func (c content) equal(other content) bool {
	return c.length == other.length && bytes.Equal(c.data, other.data)
}

// inode is a file of a stepFS.
type inode struct {
	isSynced bool
	synced   []byte // what a loss of power leaves
}

// stepFS is the file system of one folder with the files beside the journal. It knows what a loss of power leaves of them. The
// raft-boltdb file, which bbolt writes and syncs, counts as durable once it was synced under its first name.
type stepFS struct {
	disk.OS

	dir             string
	visible         map[string]*inode
	durable         map[string]*inode // of the names
	before          func(step string) // called before each change
	steps, failFrom int               // the step failFrom finds no space and, unless failsOnce, neither do all later ones that need it
	failsOnce       bool
}

func newStepFS(dir string) *stepFS {
	f := &stepFS{dir: dir, visible: map[string]*inode{}, before: func(string) {}, failFrom: -1}
	for _, name := range []string{"raft.db", "raft.db" + copySuffix} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			f.visible[name] = &inode{isSynced: true, synced: data}
		}
	}
	f.durable = maps.Clone(f.visible)
	return f
}

// step is called before a change of the folder, or of a file in it.
func (f *stepFS) step(op, path string) error {
	if path != f.dir && filepath.Dir(path) != f.dir {
		return nil
	}
	f.before(op + " " + filepath.Base(path))
	needsSpace := op == "create" || op == "write"
	f.steps++
	if at := f.steps - 1; f.failFrom == at || f.failFrom >= 0 && f.failFrom < at && needsSpace && !f.failsOnce {
		return &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
	}
	return nil
}

func (f *stepFS) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if filepath.Dir(path) != f.dir || flag == os.O_RDONLY {
		return f.OS.OpenFile(path, flag, mode)
	}
	op := "open"
	if flag&os.O_CREATE != 0 {
		op = "create"
	}
	if err := f.step(op, path); err != nil {
		return nil, err
	}
	file, err := f.OS.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	if f.visible[name] == nil || flag&os.O_TRUNC != 0 {
		f.visible[name] = &inode{}
	}
	return &stepFile{File: file, fs: f, path: path, inode: f.visible[name]}, nil
}

func (f *stepFS) Rename(from, to string) error {
	err := f.step("rename", to)
	if err == nil {
		err = f.OS.Rename(from, to)
	}
	if err == nil && filepath.Dir(to) == f.dir {
		f.visible[filepath.Base(to)] = f.visible[filepath.Base(from)]
		delete(f.visible, filepath.Base(from))
	}
	return err
}

func (f *stepFS) Remove(path string) error {
	err := f.step("remove", path)
	if err == nil {
		err = f.OS.Remove(path)
	}
	if err == nil && filepath.Dir(path) == f.dir {
		delete(f.visible, filepath.Base(path))
	}
	return err
}

func (f *stepFS) RemoveAll(path string) error {
	delete(f.visible, filepath.Base(path))
	return f.OS.RemoveAll(path)
}

func (f *stepFS) SyncFolder(path string) error {
	err := f.step("sync", path)
	if err == nil && path == f.dir {
		f.durable = maps.Clone(f.visible)
	}
	return err
}

// stepFile is an open file of a stepFS.
type stepFile struct {
	disk.File

	fs    *stepFS
	path  string
	inode *inode
}

func (s *stepFile) Write(b []byte) (int, error) {
	if err := s.fs.step("write", s.path); err != nil {
		return 0, err
	}
	return s.File.Write(b)
}

func (s *stepFile) Sync() error {
	if err := s.fs.step("sync", s.path); err != nil {
		return err
	}
	data, err := os.ReadFile(s.path)
	s.inode.isSynced, s.inode.synced = true, data
	return errors.Join(err, s.File.Sync())
}

// crashes returns what the folder can hold after a crash at this moment: after the end of the process; after a loss of power that leaves
// what was synced; and after some that also leave names, all or one of them, and a part of what was not synced.
func (f *stepFS) crashes(t *testing.T, random *rand.Rand) map[string]map[string]content {
	t.Helper()
	trimmed := func(data []byte) content {
		return content{bytes.Clone(bytes.TrimRight(data, "\x00")), int64(len(data))}
	}
	killed := map[string]content{}
	for name := range f.visible {
		killed[name] = trimmed(readFile(t, filepath.Join(f.dir, name)))
	}
	left := func(names map[string]*inode, isTorn bool) map[string]content {
		files := map[string]content{}
		for name, n := range names {
			switch current := killed[name]; {
			case n == f.visible[name] && name == "raft.db" && n.isSynced:
				files[name] = current
			case n == f.visible[name] && isTorn && len(current.data) > len(n.synced):
				files[name] = trimmed(current.data[:len(n.synced)+random.IntN(len(current.data)-len(n.synced)+1)])
			default:
				files[name] = trimmed(n.synced)
			}
		}
		return files
	}
	all := map[string]map[string]content{"process": killed, "power": left(f.durable, false), "power, names": left(f.visible, true)}
	for name := range f.visible {
		names := maps.Clone(f.durable)
		names[name] = f.visible[name]
		all["power, name of "+name] = left(names, true)
	}
	return all
}

// crashed is what a crash at a step leaves, and the values that the log must have after it.
type crashed struct {
	step    string
	files   map[string]content
	journal map[string][]byte
	values  map[string]string
}

func (c *crashed) write(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	(&stoppedLog{journal: c.journal}).write(t, path)
	for name, file := range c.files {
		at := filepath.Join(dir, name)
		kit.OK(t, errors.Join(os.WriteFile(at, file.data, 0o600), os.Truncate(at, file.length)))
	}
}

// crashEverywhere opens a log, changes terms and closes it, and returns what crashes at each step leave, each state once.
func (c *crashed) crashEverywhere(t *testing.T) (all []crashed) {
	t.Helper()
	path := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	c.write(t, path)
	files, random := newStepFS(filepath.Dir(path)), rand.New(rand.NewPCG(1, 1))
	values := c.values
	files.before = func(step string) {
		for kind, left := range files.crashes(t, random) {
			if slices.ContainsFunc(all, func(c crashed) bool {
				return maps.EqualFunc(c.files, left, content.equal) && maps.Equal(c.values, values)
			}) {
				continue
			}
			all = append(all, crashed{fmt.Sprintf("%s; %s at %d: %s", c.step, kind, files.steps, step), left, c.journal, values})
		}
	}
	l, err := Open(Config{Path: path, FS: files, Kind: Journal, SegmentBytes: 4096, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%s: %v", c.step, err)
	}
	for term := uint64(20); term < 22; term++ {
		values = maps.Clone(values) // bbolt has the change before the copy has it
		values["5/"+keyTerm] = string(indexKey(term))
		setTerm(t, l, 5, term)
	}
	files.before("close")
	kit.OK(t, l.Close())
	files.before("end")
	return all
}

// check opens a log after a crash, twice.
func (c *crashed) check(t *testing.T, path string) {
	t.Helper()
	c.write(t, path)
	c.checkOpens(t, path, 2)
}

// checkOpens opens the log at a path some times.
func (c *crashed) checkOpens(t *testing.T, path string, times int) {
	t.Helper()
	for range times {
		if got, err := openStopped(t, path); err != nil || !maps.Equal(got, c.values) {
			t.Fatalf("%s: %v\n%s", c.step, err, cmp.Diff(c.values, got))
		}
	}
}

func (s *stoppedLog) asCrash(step string) crashed {
	files := map[string]content{"raft.db": {s.bolt, s.boltBytes}, "raft.db" + copySuffix: {s.copy, int64(len(s.copy))}}
	return crashed{step, files, s.journal, s.values}
}

// A crash at any step between the open of a log and its end, after its file was damaged or not, changes no term or vote and is no
// reason to refuse the file. Neither is a second crash, while the start after the first one writes the file again.
func TestCrashAtEveryStepOfTheCopyChangesNoValue(t *testing.T) {
	t.Parallel()
	_, killed, closed := stopLogs(t)
	damaged := killed
	damaged.bolt = flipped(killed.bolt, 8*5*os.Getpagesize())
	path := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	states := 0
	for step, log := range map[string]stoppedLog{"killed": killed, "closed": closed, "damaged": damaged} {
		first := log.asCrash(step)
		for i, c := range first.crashEverywhere(t) {
			states++
			c.check(t, path)
			if step != "damaged" || i%kit.Rounds(8, 1) > 0 {
				continue
			}
			for _, again := range c.crashEverywhere(t) {
				states++
				again.check(t, path)
			}
		}
	}
	t.Logf("%d states", states)
}

// A disk that is full from any step on, or at one step only, changes no term or vote: the log does not open, or it keeps what it
// confirms. It also does not while the copy is pending.
func TestFullDiskAtEveryStepOfTheCopyChangesNoValue(t *testing.T) {
	t.Parallel()
	var bases []crashed
	for try := 0; len(bases) < 2; try++ { // whether a copy is pending depends on how far it was when the log was killed
		if try == 5 {
			t.Fatal("the copy was pending after none of the crashes of 5 logs")
		}
		_, killed, _ := stopLogs(t)
		first := killed.asCrash("killed")
		bases = []crashed{first}
		for _, c := range first.crashEverywhere(t) {
			if copied := decodeCopy(c.files["raft.db"+copySuffix].data); copied != nil && copied.transaction == pendingTransaction {
				bases = append(bases, c)
				break
			}
		}
	}
	for _, base := range bases {
		for _, once := range []bool{false, true} {
			fillEverywhere(t, &base, once)
		}
	}
}

// fillEverywhere opens a log after a crash on a disk that is full from each step on, or at one step only.
func fillEverywhere(t *testing.T, base *crashed, once bool) {
	t.Helper()
	path := filepath.Join(kit.MemoryDir(t), "log", "raft.db")
	opened, refused := 0, 0
	for step := 0; ; step++ {
		base.write(t, path)
		files := newStepFS(filepath.Dir(path))
		files.failFrom, files.failsOnce = step, once
		after := *base
		after.step = fmt.Sprintf("%s; full at step %d, once %t", base.step, step, once)
		l, err := Open(Config{Path: path, FS: files, Kind: Journal, SegmentBytes: 4096, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			opened++
			after.values = maps.Clone(base.values)
			after.values["5/"+keyTerm] = string(indexKey(20))
			setTerm(t, l, 5, 20)
			if err := l.Close(); err != nil {
				t.Errorf("%s: %v", after.step, err)
			}
		} else if refused++; !disk.IsNoSpace(err) {
			t.Errorf("%s: got %v, want an error of a full disk", after.step, err)
		}
		after.checkOpens(t, path, 1)
		if files.steps <= step {
			break
		}
	}
	if opened < 2 || refused < 2 {
		t.Errorf("%s, once %t: the log opened at %d steps and not at %d", base.step, once, opened, refused)
	}
}
