//go:build linux || darwin

package disk

import (
	"fmt"
	"syscall"
)

// FileSystemSpace returns the bytes that are free for this process on the file system that holds a folder, and
// its size.
func FileSystemSpace(dir string) (free, total uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}
