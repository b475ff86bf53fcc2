package partition

import (
	"errors"
	"os"
	"syscall"
)

// reserveBytes makes the file system set the bytes aside.
func reserveBytes(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return writeZeros(f, size)
	}
	return err
}
