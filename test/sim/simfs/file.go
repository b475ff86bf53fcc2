package simfs

import (
	"cmp"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
	"time"
)

// file is an open file. It implements disk.File.
type file struct {
	fs     *FS
	node   *node
	path   string
	at     int64 // of Read and Write; guarded by the lock of the disk
	closed atomic.Bool
}

func (f *file) check(op Op) error {
	if f.closed.Load() {
		return &fs.PathError{Op: string(op), Path: f.path, Err: fs.ErrClosed}
	}
	return f.fs.disk.check(f.fs.mount, op, f.path)
}

func (f *file) Read(p []byte) (int, error) {
	if err := f.fs.failure(CallRead, f.path); err != nil {
		return 0, err
	}
	d := f.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := f.readAt(p, f.at)
	f.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *file) ReadAt(p []byte, at int64) (int, error) {
	if err := f.fs.failure(CallRead, f.path); err != nil {
		return 0, err
	}
	d := f.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	return f.readAt(p, at)
}

func (f *file) readAt(p []byte, at int64) (int, error) {
	if err := f.check(Read); err != nil {
		return 0, err
	}
	if d := f.fs.disk; d.lost != nil && d.lost(f.path) {
		d.refused++
		return 0, PathError(CallRead, f.path, syscall.EIO)
	}
	n := f.node.data.readAt(p, int(at))
	f.fs.disk.read += int64(n)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) Write(p []byte) (int, error) {
	failure := f.fs.intercept(CallWrite, f.path)
	d := f.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := f.writeAt(p, f.at, failure)
	f.at += int64(n)
	return n, err
}

func (f *file) WriteAt(p []byte, at int64) (int, error) {
	failure := f.fs.intercept(CallWrite, f.path)
	d := f.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	return f.writeAt(p, at, failure)
}

func (f *file) writeAt(p []byte, at int64, failure Failure) (int, error) {
	if err := f.check(Write); err != nil {
		return 0, err
	}
	if failure.Err != nil {
		written := 0
		if failure.Short {
			written = len(p) / 2
			f.node.writeAt(p[:written], int(at))
		}
		return written, failure.Err
	}
	if f.fs.disk.lacks(at + int64(len(p)) - int64(f.node.data.size)) {
		return 0, noSpace(f.path)
	}
	f.node.writeAt(p, int(at))
	return len(p), nil
}

func (f *file) Truncate(size int64) error {
	if err := f.fs.failure(CallTruncate, f.path); err != nil {
		return err
	}
	d := f.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.check(Write); err != nil {
		return err
	}
	f.node.truncate(int(size))
	return nil
}

// Sync makes the content durable. After a failed one the writes are lost, although they can still be read.
func (f *file) Sync() error {
	failed := f.fs.failure(CallSync, f.path)
	d := f.fs.disk
	d.wait(f.path)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := cmp.Or(f.check(Sync), failed); err != nil {
		if f.fs.mount == d.mount {
			f.node.writes = nil
		}
		return err
	}
	f.node.syncData()
	return nil
}

func (f *file) Stat() (fs.FileInfo, error) {
	if err := f.fs.failure(CallStat, f.path); err != nil {
		return nil, err
	}
	d := f.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.check(Read); err != nil {
		return nil, err
	}
	return f.node.info(f.path), nil
}

func (f *file) Close() error {
	failed := f.fs.failure(CallClose, f.path)
	if f.closed.Swap(true) {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	return failed
}

// info describes a node. Called with the lock of the disk.
func (n *node) info(name string) fs.FileInfo {
	return info{name, int64(n.data.size), n.isFolder(), n.changed}
}

// info implements fs.FileInfo.
type info struct {
	name    string
	size    int64
	folder  bool
	changed time.Time
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return i.changed }
func (i info) IsDir() bool        { return i.folder }
func (i info) Sys() any           { return nil }

func (i info) Mode() fs.FileMode {
	if i.folder {
		return fs.ModeDir | 0o700
	}
	return 0o600
}
