//go:build linux || darwin

package cluster

import (
	"syscall"
)

// diskSpace is the size of the file system that holds a folder, and what is free in it for
// this process; zeros when the system does not say.
func diskSpace(dir string) (size, free uint64) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize)
}
