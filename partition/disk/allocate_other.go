//go:build !linux

package disk

import "os"

// reserveBytes writes the bytes.
func reserveBytes(f *os.File, size int64) error { return writeZeros(f, size) }
