package entity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// bytesTextMax bounds the text of a number of bytes before it is parsed.
const bytesTextMax = 32

// byteUnit is a unit of bytes.
type byteUnit struct {
	name  string
	bytes int64
}

// byteUnits returns the units of bytes, longer names first.
func byteUnits() []byteUnit {
	return []byteUnit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}
}

// ParseBytes parses a number of bytes, 0 or more: a whole number, alone or followed by B, KiB, MiB, GiB or TiB. A number
// alone may be in the form in which Helm writes large ones (1.34217728e+08).
func ParseBytes(text string) (int64, error) {
	if len(text) <= bytesTextMax {
		for _, unit := range byteUnits() {
			number, found := strings.CutSuffix(text, unit.name)
			if !found {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 63); err == nil && int64(n) <= math.MaxInt64/unit.bytes {
				return int64(n) * unit.bytes, nil
			}
			break
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && strings.Contains(text, "e+") && f >= 0 && f < 1<<53 && f == math.Trunc(f) {
			return int64(f), nil
		}
	}
	return 0, fmt.Errorf("%.40q is not a number of bytes: write a whole number, alone or with B, KiB, MiB, GiB or TiB, such as 64MiB", text)
}

// FormatBytes returns a number of bytes as ParseBytes reads it, in the largest unit of which it is a multiple.
func FormatBytes(n int64) string {
	for _, unit := range byteUnits() {
		if unit.bytes > 1 && n >= unit.bytes && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}
