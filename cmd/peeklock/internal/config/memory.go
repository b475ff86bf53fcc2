package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MemoryLimitMin is the lowest memory limit, in bytes: an idle member needs this much, including free memory for
// the garbage collector.
const MemoryLimitMin = 256 << 20

// ParseMemoryLimit parses a memory limit in bytes; 0 for "", which means the default.
func ParseMemoryLimit(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	bytes, ok := ParseBytes(text)
	switch {
	case !ok:
		return 0, fmt.Errorf("memory_limit: %.100q is not a number of bytes: write it like 4GiB", text)
	case bytes < MemoryLimitMin:
		return 0, fmt.Errorf("memory_limit: %s is too little: 256MiB or more", text)
	}
	return bytes, nil
}

func (s *Settings) validateMemory() error {
	_, err := ParseMemoryLimit(s.MemoryLimit)
	return err
}

// ParseBytes parses a number of bytes such as 50MiB, 0 or more; ok is false if text is not such a number.
func ParseBytes(text string) (bytes int64, ok bool) {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}} { // longer names first
		number, found := strings.CutSuffix(text, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		return n * unit.bytes, err == nil && n >= 0 && n <= math.MaxInt64/unit.bytes
	}
	return 0, false
}
