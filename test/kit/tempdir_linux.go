package kit

import (
	"os"
	"syscall"
	"testing"
)

const (
	memoryDir      = "/dev/shm"
	memoryBytesMin = 2 << 30 // free in memoryDir, else tests use the disk
)

// MemoryDir returns a folder that is removed at the end of the test. It is in memory where enough of it is
// free, so that tests which do not examine the disk need not wait for its syncs. Benchmarks get a folder on
// the disk.
func MemoryDir(t testing.TB) string {
	t.Helper()
	var s syscall.Statfs_t
	_, isBenchmark := t.(*testing.B)
	if isBenchmark || syscall.Statfs(memoryDir, &s) != nil || s.Bavail*uint64(s.Bsize) < memoryBytesMin {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memoryDir, "peeklock-test-") //nolint:usetesting // in another file system
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
