//go:build !linux

package disk

import "syscall"

// errCorruptFS is EIO where there is no error for damaged metadata.
const errCorruptFS = syscall.EIO
