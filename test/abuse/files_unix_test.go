//go:build unix

package abuse

import "syscall"

// filesMax is how many files this process may open.
func filesMax() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return filesAssumed
	}
	return int(min(limit.Cur, 1<<20))
}
