//go:build !linux

package main

import "time"

// bootTime returns the clock that goes on whatever the wall clock is set to. It may stand still while the host is
// suspended; then wall time is held if all hosts were suspended together.
func bootTime() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
