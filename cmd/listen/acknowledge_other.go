//go:build !linux

package listen

import "syscall"

// acknowledgeTCP does nothing: the kernel has no such option.
func acknowledgeTCP(syscall.Conn) {}
