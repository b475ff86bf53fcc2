//go:build !linux

package bench

import "io/fs"

// diskBytes returns the disk space that a file occupies at most.
func diskBytes(info fs.FileInfo) int64 { return info.Size() }
