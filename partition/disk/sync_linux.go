package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// SyncData makes the content of a file durable, and of its metadata only what is needed to read the content
// again: on a file whose size does not change it is cheaper than Sync.
func SyncData(f File) error {
	file, ok := f.(*os.File)
	if !ok {
		return f.Sync()
	}
	for {
		err := syscall.Fdatasync(int(file.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &fs.PathError{Op: "sync", Path: file.Name(), Err: err}
		}
	}
}
