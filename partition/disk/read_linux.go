package disk

import "syscall"

// errCorruptFS is what file systems return for metadata that are damaged.
const errCorruptFS = syscall.EUCLEAN
