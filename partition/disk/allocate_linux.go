package disk

import (
	"errors"
	"os"
	"syscall"
)

// reserveBytes reserves the bytes in the file system.
func reserveBytes(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Fallocate(int(f.Fd()), 0, 0, size)
	}
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return writeZeros(f, size)
	}
	return err
}
