package bodystore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// fewFiles is a file system in which no file can be opened while short is set.
type fewFiles struct {
	disk.FS

	short   atomic.Bool
	refused atomic.Int64
}

func (f *fewFiles) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if f.short.Load() {
		f.refused.Add(1)
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
	}
	return f.FS.OpenFile(path, flag, mode)
}

// Without file descriptors the active segment grows beyond its size, and the first one is not created and can be created later.
// Segments that cannot be opened are not damaged.
func TestBodiesSurviveAShortageOfFiles(t *testing.T) {
	t.Parallel()
	const segmentBytes = 1 << 10
	files, dir := &fewFiles{FS: disk.OS{}}, t.TempDir()
	b := kit.Must(Open(files, dir, segmentBytes, nil, failed(t)))(t)
	t.Cleanup(func() { _ = b.Close() })
	files.short.Store(true)
	if err := b.OpenSegment(); !disk.IsShortage(err) || disk.IsNoSpace(err) || b.HasSegment() {
		t.Fatalf("the first segment: %v", err)
	}
	var refs []fsm.Ref
	add := func() {
		refs = append(refs, b.Append(owner(len(refs)), bytes.Repeat([]byte{byte(len(refs))}, segmentBytes/3)))
	}
	add() // in memory
	if err := errors.Join(b.Flush(), b.FlushFull()); err != nil || b.HasSegment() || len(b.Read(refs[0])) != segmentBytes/3 {
		t.Fatalf("a body in memory: %v", err)
	}
	if err := b.WriteOut(); !disk.IsOutOfFiles(err) {
		t.Fatalf("it was written: %v", err)
	}
	if _, err := b.Freeze(); !disk.IsOutOfFiles(err) {
		t.Fatalf("it is listed: %v", err)
	}
	files.short.Store(false)
	if err := b.OpenSegment(); err != nil || !b.HasSegment() {
		t.Fatal(err)
	}
	files.short.Store(true)
	for range 10 {
		add()
	}
	if n := b.SegmentCount(); n != 1 || files.refused.Load() < 2 {
		t.Errorf("%d segments, refused %d times", n, files.refused.Load())
	}
	files.short.Store(false)
	add()
	if n := b.SegmentCount(); n != 2 {
		t.Errorf("%d segments", n)
	}
	for i, ref := range refs {
		if got := b.Read(ref); !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, segmentBytes/3)) {
			t.Errorf("body %d", i)
		}
	}
	listed := kit.Must(b.Freeze())(t)
	files.short.Store(true)
	if _, err := Open(files, dir, segmentBytes, listed, failed(t)); !disk.IsOutOfFiles(err) || errors.Is(err, disk.ErrDamaged) {
		t.Errorf("opened without files: %v", err)
	}
	files.short.Store(false)
	kit.OK(t, os.Remove(Path(dir, listed[0].Number)))
	if _, err := Open(files, dir, segmentBytes, listed, failed(t)); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("opened without a segment: %v", err)
	}
}
