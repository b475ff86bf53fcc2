package bench

import (
	"io/fs"
	"syscall"
)

// diskBytes returns the disk space that a file occupies. Log files are larger than that, because they
// grow in large steps.
func diskBytes(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
