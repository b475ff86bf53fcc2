package config

import (
	"fmt"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
)

// MemoryLimitMin is the lowest memory limit, in bytes: an idle member needs this much, including free memory for
// the garbage collector.
const MemoryLimitMin = 256 << 20

// CheckMemoryLimit refuses a memory limit that is too low for a member; 0 is the default.
func CheckMemoryLimit(limit quantity.Bytes) error {
	if limit != 0 && limit < MemoryLimitMin {
		return fmt.Errorf("%s is too little: %s or more", limit, quantity.Bytes(MemoryLimitMin))
	}
	return nil
}
