//go:build linux || darwin

package cluster

import (
	"syscall"
)

// diskSpace returns the size of the file system that holds a folder, and the free space in it that this process
// may use. It returns zeros if the operating system reports no sizes.
func diskSpace(dir string) (size, free uint64) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize)
}
