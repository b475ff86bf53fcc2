//go:build !linux

package bench

import "io/fs"

// taken returns the disk space that a file occupies at most.
func taken(info fs.FileInfo) int64 { return info.Size() }
