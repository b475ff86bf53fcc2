package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// brokenReader cannot read a byte for the next so many times.
type brokenReader struct {
	content []byte
	bad     int64
	times   int
}

func (r *brokenReader) ReadAt(b []byte, at int64) (int, error) {
	if at <= r.bad && r.bad < at+int64(len(b)) && r.times > 0 {
		r.times--
		return 0, &fs.PathError{Op: "read", Path: "f", Err: syscall.EIO}
	}
	return bytes.NewReader(r.content).ReadAt(b, at)
}

// Only the page that cannot be read is lost, and an error that passes loses nothing.
func TestOnlyUnreadablePagesAreLost(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("peeklock"), 3*readPageBytes/8)
	for _, c := range []struct {
		times int
		lost  bool
	}{{1, false}, {3, false}, {1 << 30, true}} {
		r := &brokenReader{content, readPageBytes + 7, c.times}
		const begin = 100
		got := make([]byte, len(content)-begin)
		err := ReadPages(r, got, begin)
		want := bytes.Clone(content)
		if c.lost {
			copy(want[readPageBytes:], bytes.Repeat([]byte{unreadableByte}, readPageBytes))
		}
		if errors.Is(err, ErrDamaged) != c.lost || (err != nil) != c.lost || !bytes.Equal(got, want[begin:]) {
			t.Errorf("%d failures: %v, as it should be: %v", c.times, err, bytes.Equal(got, want[begin:]))
		}
	}
	for times, lost := range map[int]bool{1: false, 2: true} {
		r := &brokenReader{content, 0, times}
		got, err := io.ReadAll(Reader(io.NewSectionReader(r, 0, int64(len(content)))))
		if errors.Is(err, ErrDamaged) != lost || !lost && !bytes.Equal(got, content) {
			t.Errorf("read in order, %d failures: %v", times, err)
		}
	}
	if err := ReadAt(&brokenReader{content: content}, make([]byte, 1), int64(len(content))); !errors.Is(err, ErrDamaged) {
		t.Errorf("behind the end: %v", err)
	}
}

// brokenOpen cannot open files for the next so many times.
type brokenOpen struct {
	OS

	times int
}

func (d *brokenOpen) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	if d.times > 0 {
		d.times--
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EIO}
	}
	return d.OS.OpenFile(path, flag, mode)
}

// A file that cannot be opened is opened again once, as bytes are read again.
func TestOpenIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	kit.OK(t, WriteFile(OS{}, path, nil, FileMode))
	for name, open := range map[string]func(FS, string) (File, error){"Open": Open, "OpenWritable": OpenWritable} {
		f, err := open(&brokenOpen{times: 1}, path)
		if err != nil {
			t.Errorf("%s after one error: %v", name, err)
		} else if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := open(&brokenOpen{times: 2}, path); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s after two errors: got %v, want %v", name, err, syscall.EIO)
		}
	}
}

// shortWrites writes half of what it is given, for a full disk.
type shortWrites struct{ OS }

type shortFile struct{ File }

func (d shortWrites) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	f, err := d.OS.OpenFile(path, flag, mode)
	return shortFile{f}, err
}

func (f shortFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p[:len(p)/2])
	return n, errors.Join(err, syscall.ENOSPC)
}

// A write that fails in the middle leaves the former content, or no file.
func TestWriteSyncedReplacesAll(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteSynced(shortWrites{}, path, []byte("first"), FileMode); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a short write returned %v, want %v", err, syscall.ENOSPC)
	}
	if got, err := (OS{}).ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a failed write the file has %q, %v", got, err)
	}
	for _, content := range []string{"first", "second"} {
		kit.OK(t, WriteSynced(OS{}, path, []byte(content), FileMode))
		_ = WriteSynced(shortWrites{}, path, []byte("another"), FileMode)
		if got, err := (OS{}).ReadFile(path); err != nil || string(got) != content {
			t.Errorf("after a failed write the file has %q, %v, want %q", got, err, content)
		}
	}
}
