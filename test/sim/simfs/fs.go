package simfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/peeklock/peeklock/partition/disk"
)

var _ disk.FS = (*FS)(nil)

func notFound(op Op, path string) error {
	return &fs.PathError{Op: string(op), Path: path, Err: fs.ErrNotExist}
}

// folder returns the folder of a path, and the last element of the path. Called with the lock of the disk.
func (f *FS) folder(op Op, path string) (*node, string, error) {
	path = filepath.Clean(path)
	n := f.disk.root.find(filepath.Dir(path))
	if n == nil || !n.isFolder() {
		return nil, "", notFound(op, path)
	}
	return n, filepath.Base(path), nil
}

// OpenFile implements disk.FS.
func (f *FS) OpenFile(path string, flag int, _ fs.FileMode) (disk.File, error) {
	call := CallOpen
	if flag&os.O_CREATE != 0 {
		call = CallCreate
	}
	if err := f.failure(call, path); err != nil {
		return nil, err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f.mount, Open, path); err != nil {
		return nil, err
	}
	folder, name, err := f.folder(Open, path)
	if err != nil {
		return nil, err
	}
	n := folder.names[name]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, notFound(Open, path)
	case n != nil && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: string(Open), Path: path, Err: fs.ErrExist}
	case n != nil && n.isFolder():
		return nil, &fs.PathError{Op: string(Open), Path: path, Err: syscall.EISDIR}
	case n == nil && d.full:
		return nil, &fs.PathError{Op: string(Open), Path: path, Err: syscall.ENOSPC}
	case n == nil:
		n = &node{changed: time.Now()}
		folder.change(nameChange{name: n})
	case flag&os.O_TRUNC != 0:
		n.truncate(0)
	}
	return &file{fs: f, node: n, path: path}, nil
}

// ReadFile implements disk.FS.
func (f *FS) ReadFile(path string) ([]byte, error) {
	from, err := f.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(from)
	return content, errors.Join(err, from.Close())
}

// ReadDir implements disk.FS.
func (f *FS) ReadDir(path string) ([]fs.DirEntry, error) {
	if err := f.failure(CallList, path); err != nil {
		return nil, err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f.mount, Read, path); err != nil {
		return nil, err
	}
	n := d.root.find(path)
	if n == nil || !n.isFolder() {
		return nil, notFound(Read, path)
	}
	entries := make([]fs.DirEntry, 0, len(n.names))
	for _, name := range sortedNames(n.names) {
		entries = append(entries, fs.FileInfoToDirEntry(n.names[name].info(name)))
	}
	return entries, nil
}

// Stat implements disk.FS.
func (f *FS) Stat(path string) (fs.FileInfo, error) {
	if err := f.failure(CallStat, path); err != nil {
		return nil, err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.mount != d.mount {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrClosed}
	}
	n := d.root.find(path)
	if n == nil {
		return nil, notFound("stat", path)
	}
	return n.info(filepath.Base(path)), nil
}

// Mkdir implements disk.FS.
func (f *FS) Mkdir(path string, _ fs.FileMode) error {
	if err := f.failure(CallMkdir, path); err != nil {
		return err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f.mount, Open, path); err != nil {
		return err
	}
	folder, name, err := f.folder(Open, path)
	switch {
	case err != nil:
		return err
	case folder.names[name] != nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrExist}
	case d.full:
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOSPC}
	}
	folder.change(nameChange{name: newFolder()})
	return nil
}

// MkdirAll implements disk.FS.
func (f *FS) MkdirAll(path string, mode fs.FileMode) error {
	path = filepath.Clean(path)
	if info, err := f.Stat(path); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := f.MkdirAll(parent, mode); err != nil {
			return err
		}
	}
	if err := f.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Rename implements disk.FS, within one folder: it is on disk as a whole or not at all.
func (f *FS) Rename(from, to string) error {
	if err := f.failure(CallRename, from); err != nil {
		return err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f.mount, Rename, from); err != nil {
		return err
	}
	folder, oldName, err := f.folder(Rename, from)
	if err != nil {
		return err
	}
	other, newName, err := f.folder(Rename, to)
	if err != nil {
		return err
	}
	n := folder.names[oldName]
	switch {
	case n == nil:
		return notFound(Rename, from)
	case other != folder:
		return &fs.PathError{Op: string(Rename), Path: to, Err: errors.ErrUnsupported}
	case other.names[newName] != nil && n.isFolder():
		return &fs.PathError{Op: string(Rename), Path: to, Err: fs.ErrExist}
	}
	folder.change(nameChange{oldName: nil, newName: n})
	return nil
}

// Remove implements disk.FS.
func (f *FS) Remove(path string) error {
	if err := f.failure(CallRemove, path); err != nil {
		return err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f.mount, Remove, path); err != nil {
		return err
	}
	folder, name, err := f.folder(Remove, path)
	if err != nil {
		return err
	}
	n := folder.names[name]
	switch {
	case n == nil:
		return notFound(Remove, path)
	case len(n.names) > 0:
		return &fs.PathError{Op: string(Remove), Path: path, Err: syscall.ENOTEMPTY}
	}
	folder.change(nameChange{name: nil})
	return nil
}

// RemoveAll implements disk.FS, name by name.
func (f *FS) RemoveAll(path string) error {
	info, err := f.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		names, err := f.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range names {
			if err := f.RemoveAll(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return f.Remove(path)
}

// SyncFolder implements disk.FS.
func (f *FS) SyncFolder(path string) error {
	if err := f.failure(CallSyncFolder, path); err != nil {
		return err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f.mount, SyncFolder, path); err != nil {
		return err
	}
	n := d.root.find(path)
	if n == nil || !n.isFolder() {
		return notFound(SyncFolder, path)
	}
	n.syncNames(len(n.unsynced))
	return nil
}

// Lock implements disk.FS. The lock of a process that was killed is free.
func (f *FS) Lock(path string) (io.Closer, error) {
	opened, err := f.OpenFile(path, os.O_CREATE|os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.root.find(path)
	if _, taken := d.locks[n]; taken {
		return nil, errors.New("in use by another process")
	}
	d.locks[n] = f.mount
	return &lock{opened, f, n}, nil
}

// lock is a lock that is held.
type lock struct {
	disk.File

	fs   *FS
	node *node
}

// Close frees the lock.
func (l *lock) Close() error {
	d := l.fs.disk
	d.mu.Lock()
	if d.locks[l.node] == l.fs.mount {
		delete(d.locks, l.node)
	}
	d.mu.Unlock()
	return l.File.Close()
}
