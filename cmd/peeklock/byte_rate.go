package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/cmd/objects"
)

// rateFlag is a flag: bytes a second, with or without a unit; 0 is no bound.
type rateFlag int64

// byteUnits are the units that it takes, the longer names first.
func byteUnits() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}
}

// String is what Set takes.
func (r *rateFlag) String() string { return strconv.FormatInt(int64(*r), 10) }

// Type is the name in the help.
func (r *rateFlag) Type() string { return "bytes" }

// Set reads a rate like 50MiB.
func (r *rateFlag) Set(text string) error {
	bytes, ok := parseBytes(text)
	switch {
	case !ok:
		return fmt.Errorf("%q is no rate: write it like 50MiB", printable(text, 100))
	case bytes > 0 && bytes < objects.RateBytesMin:
		return fmt.Errorf("%s a second is too slow for the members: 64KiB or more", text)
	}
	*r = rateFlag(bytes)
	return nil
}

// parseBytes reads a number of bytes like 50MiB, 0 or more; false when it is none.
func parseBytes(text string) (bytes int64, ok bool) {
	for _, unit := range byteUnits() {
		number, found := strings.CutSuffix(text, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		return n * unit.bytes, err == nil && n >= 0 && n <= math.MaxInt64/unit.bytes
	}
	return 0, false
}
