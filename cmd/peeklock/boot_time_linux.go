package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the clock that counts since the host was started, the time for which it was suspended included; nil if
// the kernel has none.
func bootTime() func() time.Duration {
	read := func() (time.Duration, error) {
		var at unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at)
		return time.Duration(at.Nano()), err
	}
	if _, err := read(); err != nil {
		return nil
	}
	return func() time.Duration {
		at, _ := read() // it fails at the first call or never
		return at
	}
}
