//go:build unix

package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile takes the lock of a file; it is freed when the file is closed or the
// process ends, however it ends.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640) //nolint:gosec // a path of our own making
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.New("in use by another process")
	}
	return nil, fmt.Errorf("take lock: %w", err)
}
