package fault

import (
	"io/fs"
	"syscall"
)

// diskBytes is what a file takes: less than its length where it has holes.
func diskBytes(f fs.FileInfo) float64 {
	if s, ok := f.Sys().(*syscall.Stat_t); ok {
		return float64(s.Blocks) * 512
	}
	return float64(f.Size())
}
