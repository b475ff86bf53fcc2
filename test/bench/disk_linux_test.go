package bench

import (
	"io/fs"
	"syscall"
)

// diskBytes is how much of a disk a file takes: logs are longer than that, for they grow in
// large steps.
func diskBytes(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
