package simfs

import (
	"io/fs"
	"syscall"
	"time"
)

// The methods of disk.FS, disk.File and raftlog.Store, as [Disk.Intercept] names them.
const (
	CallOpen       = "open"   // of a file that exists
	CallCreate     = "create" // of a file
	CallList       = "list"   // of the names in a folder
	CallStat       = "stat"
	CallMkdir      = "mkdir"
	CallRename     = "rename"
	CallRemove     = "remove"
	CallSyncFolder = "sync folder"
	CallRead       = "read"
	CallWrite      = "write"
	CallTruncate   = "truncate"
	CallSync       = "sync"
	CallClose      = "close"

	CallLogOpen   = "log open"
	CallLogRead   = "log read"
	CallLogStore  = "log store"
	CallLogDelete = "log delete"
	CallLogSet    = "log set"
	CallLogGet    = "log get"
)

// Failure is what happens to a call. The zero value: nothing.
type Failure struct {
	Hang  time.Duration // passes before the call
	Err   error         // returned by the call, which changes nothing; nil: it proceeds
	Short bool          // a write that fails has written the first half
}

// Intercept sets the function that decides what happens to each call of the running process; nil means nothing. The
// function is called without the lock of the disk, on the goroutine of the call. A call may hang with a mutex of the
// product held, so Failure.Hang needs the runtime of command repeat.
func (d *Disk) Intercept(decide func(call, path string) Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decide = decide
}

// intercept returns what happens to a call, after it has hung. Called without the lock of the disk.
func (f *FS) intercept(call, path string) Failure {
	d := f.disk
	d.mu.Lock()
	decide := d.decide
	if f.mount != d.mount {
		decide = nil // the call fails because its process has ended
	}
	d.mu.Unlock()
	if decide == nil {
		return Failure{}
	}
	failure := decide(call, path)
	if failure.Hang > 0 {
		<-time.After(failure.Hang)
	}
	return failure
}

// failure is intercept for a call that fails as a whole.
func (f *FS) failure(call, path string) error { return f.intercept(call, path).Err }

// PathError is an error of a call as package os returns it. The log reports what fails to be written as the write of its file.
func PathError(call, path string, err syscall.Errno) error {
	op := call
	switch call {
	case CallCreate, CallList, CallLogOpen:
		op = "open"
	case CallSyncFolder:
		op = "sync"
	case CallLogStore, CallLogDelete, CallLogSet:
		op = "write"
	case CallLogRead, CallLogGet:
		op = "read"
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
