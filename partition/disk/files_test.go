package disk

import (
	"io/fs"
	"syscall"
	"testing"
)

// Only a write that found no space may be repeated. A sync that fails with a full disk may have lost pages.
func TestOnlyAFailedWriteIsRetriable(t *testing.T) {
	t.Parallel()
	if IsRetriableWrite(syscall.ENOSPC) || !IsRetriableWrite(&fs.PathError{Op: "write", Err: syscall.ENOSPC}) ||
		IsRetriableWrite(&fs.PathError{Op: "sync", Err: syscall.ENOSPC}) || IsRetriableWrite(&fs.PathError{Op: "write", Err: syscall.EIO}) {
		t.Error("IsRetriableWrite")
	}
}
