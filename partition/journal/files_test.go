package journal_test

import (
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/journal"
)

// fewFiles is a file system in which files and folders cannot be opened while there is a shortage of file descriptors.
type fewFiles struct {
	disk.FS

	files, folders atomic.Bool // that there is a shortage for these
	refused        atomic.Int64
}

func (f *fewFiles) fail(short *atomic.Bool, path string) error {
	if !short.Load() {
		return nil
	}
	f.refused.Add(1)
	return &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
}

func (f *fewFiles) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if err := f.fail(&f.files, path); err != nil {
		return nil, err
	}
	return f.FS.OpenFile(path, flag, mode)
}

func (f *fewFiles) SyncFolder(path string) error {
	if err := f.fail(&f.folders, path); err != nil {
		return err
	}
	return f.FS.SyncFolder(path)
}

// A journal that has no file descriptor for its next segment refuses appends, changes nothing, and goes on when there is one again.
func TestJournalWaitsForFiles(t *testing.T) {
	t.Parallel()
	for name, shortage := range map[string]func(*fewFiles) *atomic.Bool{
		"files":   func(f *fewFiles) *atomic.Bool { return &f.files },
		"folders": func(f *fewFiles) *atomic.Bool { return &f.folders },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, inner := newDisk(t, 1)
				files, catalog := &fewFiles{FS: inner}, &values{set: map[string][]byte{}}
				j := mustOpen(t, files, catalog)
				next, short := uint64(1), shortage(files)
				add := func() error {
					synctest.Wait() // for the preparer
					err := j.Append([]journal.Entry{{Group: 1, Index: next, Data: make([]byte, 2*sectorBytes)}})
					if err == nil {
						next++
					}
					return err
				}
				for round := range 3 { // the first segment, and two switches without a spare one
					short.Store(true)
					var err error
					for err == nil {
						err = add()
					}
					if again := add(); !disk.IsRetriableWrite(err) || !disk.IsOutOfFiles(err) || !disk.IsRetriableWrite(again) {
						t.Fatalf("round %d: %v, then %v", round, err, again)
					}
					short.Store(false)
					must(t, add(), add())
				}
				if files.refused.Load() < 6 {
					t.Errorf("refused %d times", files.refused.Load())
				}
				must(t, j.Close())
				j = mustOpen(t, files, catalog)
				if diff := cmp.Diff(map[uint32]journal.Range{1: {First: 1, Last: next - 1}}, j.Ranges()); diff != "" {
					t.Error(diff)
				}
				must(t, j.Close())
			})
		})
	}
}

// A shortage of file descriptors that ends before a segment is full is not noticed: its successor is prepared as soon as it can be.
func TestSpareSegmentIsPreparedAfterAShortageOfFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, inner := newDisk(t, 1)
		files := &fewFiles{FS: inner}
		j := mustOpen(t, files, &values{set: map[string][]byte{}})
		index := uint64(0)
		add := func() error {
			index++
			return j.Append([]journal.Entry{{Group: 1, Index: index}}) // a sector
		}
		must(t, add())
		files.files.Store(true)
		for files.refused.Load() == 0 {
			must(t, add())
			synctest.Wait()
		}
		files.files.Store(false)
		<-time.After(disk.RetryInterval)
		synctest.Wait()
		files.files.Store(true)
		for range segmentBytes / sectorBytes {
			must(t, add())
		}
		must(t, j.Close())
	})
}
