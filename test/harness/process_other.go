//go:build !linux

package harness

import "syscall"

// dieWithParent has no counterpart here: members end with the cleanup of their test.
func dieWithParent() *syscall.SysProcAttr { return nil }
