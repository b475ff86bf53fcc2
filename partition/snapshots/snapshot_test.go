package snapshots

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/partition/disk"
)

// fewFiles is a disk on which no file can be opened while short is set.
type fewFiles struct {
	disk.FS

	short atomic.Bool
}

func (d *fewFiles) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if d.short.Load() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
	}
	return d.FS.OpenFile(path, flag, mode)
}

func (d *fewFiles) ReadFile(path string) ([]byte, error) {
	f, err := d.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

// Files of a snapshot that cannot be opened for lack of file descriptors are not damaged; files that are gone are.
func TestShortageOfFilesIsNoDamageOfASnapshot(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*Snapshot) error{
		imageFile: func(s *Snapshot) error { return s.Load(nil) },
		refsFile: func(s *Snapshot) error {
			_, err := s.readRefs()
			return err
		},
		manifestFile: func(s *Snapshot) error {
			_, err := readManifest(s.files, s.Dir)
			return err
		},
	} {
		d := &fewFiles{FS: disk.OS{}}
		s := &Snapshot{files: d, Dir: t.TempDir()}
		if err := read(s); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("%s is gone: %v", name, err)
		}
		d.short.Store(true)
		if err := read(s); !disk.IsOutOfFiles(err) || errors.Is(err, disk.ErrDamaged) {
			t.Errorf("%s cannot be opened: %v", name, err)
		}
	}
}
