//go:build !linux

package partition

import "os"

// reserveBytes writes the bytes.
func reserveBytes(f *os.File, size int64) error { return writeZeros(f, size) }
