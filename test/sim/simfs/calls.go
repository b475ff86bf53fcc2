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

// Op is a kind of operation that can be made to fail.
type Op string

// The kinds of operations.
const (
	Open       Op = "open"  // of a file, also to create it
	Read       Op = "read"  // of a file
	Write      Op = "write" // to a file
	Sync       Op = "sync"  // of a file
	SyncFolder Op = "sync folder"
	Rename     Op = "rename"
	Remove     Op = "remove" // of a file or a folder
	Log        Op = "log"    // a transaction of a log
)

// Failure is what happens to a call. The zero value: nothing.
type Failure struct {
	Hang  time.Duration // passes before the call
	Err   error         // returned by the call, which changes nothing; nil: it proceeds
	Short bool          // a write that fails has written the first half
}

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
