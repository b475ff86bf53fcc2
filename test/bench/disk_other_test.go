//go:build !linux

package bench

import "io/fs"

// taken is how much of a disk a file takes, at most.
func taken(info fs.FileInfo) int64 { return info.Size() }
