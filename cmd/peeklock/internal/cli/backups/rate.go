package backups

import (
	"fmt"
	"strconv"

	"github.com/peeklock/peeklock/cmd/objects"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
)

// rateFlag is a flag for a rate in bytes per second, with or without a unit; 0 is no limit.
type rateFlag int64

// String implements pflag.Value.
func (r *rateFlag) String() string { return strconv.FormatInt(int64(*r), 10) }

// Type returns the name of the value in the help.
func (r *rateFlag) Type() string { return "bytes" }

// Set reads a rate like 50MiB.
func (r *rateFlag) Set(text string) error {
	var bytes quantity.Bytes
	if err := bytes.Set(text); err != nil {
		return err
	}
	if bytes > 0 && bytes < objects.RateBytesMin {
		return fmt.Errorf("%s a second is too slow for the members: 64KiB or more", bytes)
	}
	*r = rateFlag(bytes)
	return nil
}
