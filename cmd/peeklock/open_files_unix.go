//go:build linux || darwin

package main

import "syscall"

// openFilesMax returns how many files the process may have open, or 0 if that is unknown. Go has raised the soft limit to the hard
// one already.
func openFilesMax() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}
