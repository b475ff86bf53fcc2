//go:build !linux && !darwin

package main

// openFilesMax returns 0: the limit is unknown on this system.
func openFilesMax() uint64 { return 0 }
