package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is the file system that holds the data of a member: all that packages partition and cluster store passes
// through it, except the file of the log, see [github.com/peeklock/peeklock/partition/raftlog.OpenStore]. Its
// errors are those of package os: they match fs.ErrNotExist, fs.ErrExist and fs.ErrClosed, and a full disk is
// an *fs.PathError of ENOSPC. All methods may be called concurrently.
type FS interface {
	// OpenFile opens a file with the flags of package os.
	OpenFile(path string, flag int, mode fs.FileMode) (File, error)
	ReadFile(path string) ([]byte, error)
	ReadDir(path string) ([]fs.DirEntry, error)
	Stat(path string) (fs.FileInfo, error)
	Mkdir(path string, mode fs.FileMode) error
	MkdirAll(path string, mode fs.FileMode) error
	Rename(from, to string) error
	Remove(path string) error
	RemoveAll(path string) error
	// SyncFolder makes the names in a folder durable: those that were created, renamed and removed.
	SyncFolder(path string) error
	// Lock creates the file if needed and locks it against other processes. The lock ends when it is closed or
	// when the process ends, however it ends. It returns an error at once if another process has it.
	Lock(path string) (io.Closer, error)
}

// File is an open file. What is written is durable after Sync.
type File interface {
	io.Reader
	io.Writer
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
}

// OS is the file system of the operating system.
type OS struct{}

var _ FS = OS{}

// OpenFile implements FS.
func (OS) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, mode) //nolint:gosec // a path of our own making
	if err != nil {
		return nil, err // not f: a nil *os.File in an interface is not nil
	}
	return f, nil
}

// ReadFile implements FS.
func (OS) ReadFile(path string) ([]byte, error) {
	return os.ReadFile(path) //nolint:gosec // a path of our own making
}

// ReadDir implements FS.
func (OS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// Stat implements FS.
func (OS) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

// Mkdir implements FS.
func (OS) Mkdir(path string, mode fs.FileMode) error { return os.Mkdir(path, mode) }

// MkdirAll implements FS.
func (OS) MkdirAll(path string, mode fs.FileMode) error { return os.MkdirAll(path, mode) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// RemoveAll implements FS.
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// SyncFolder implements FS.
func (OS) SyncFolder(path string) error { return syncFolder(path) }

// Lock implements FS.
func (OS) Lock(path string) (io.Closer, error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// NoSync is the file system of the operating system without durability: files survive the end of the process, not that of
// the machine.
type NoSync struct{ OS }

// OpenFile implements FS.
func (NoSync) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, mode) //nolint:gosec // a path of our own making
	if err != nil {
		return nil, err
	}
	return noSyncFile{f}, nil
}

// SyncFolder implements FS.
func (NoSync) SyncFolder(string) error { return nil }

// noSyncFile is a file of NoSync.
type noSyncFile struct{ *os.File }

// Sync implements File.
func (noSyncFile) Sync() error { return nil }

// Create creates a file, which must not exist, for reading and writing.
func Create(files FS, path string) (File, error) {
	return files.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, FileMode)
}

// Open opens a file for reading. It tries again once after an error for which IsUnreadable is true.
func Open(files FS, path string) (File, error) { return open(files, path, os.O_RDONLY) }

// OpenWritable is Open for reading and writing.
func OpenWritable(files FS, path string) (File, error) { return open(files, path, os.O_RDWR) }

// open opens a file that exists.
func open(files FS, path string, flag int) (File, error) {
	f, err := files.OpenFile(path, flag, 0)
	if IsUnreadable(err) {
		f, err = files.OpenFile(path, flag, 0)
	}
	return f, err
}

// WriteSynced writes a small file and makes the file and its name durable. A file that exists is replaced: after an error or a
// crash it has the former content or the new one.
func WriteSynced(files FS, path string, content []byte, mode fs.FileMode) error {
	if err := WriteFile(files, path+".new", content, mode); err != nil {
		return err
	}
	if err := files.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return files.SyncFolder(filepath.Dir(path))
}

// WriteFile writes and syncs a file, without making its name durable. It truncates a file that exists.
func WriteFile(files FS, path string, content []byte, mode fs.FileMode) error {
	f, err := files.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
