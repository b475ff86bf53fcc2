package harness

import "syscall"

// dieWithParent makes the kernel kill a member when the test process dies, so that a
// test that panics or runs out of time leaves nothing behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
