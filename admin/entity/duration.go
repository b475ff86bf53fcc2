package entity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// durationBytesMax bounds the text of a duration before it is parsed.
const durationBytesMax = 64

// Forever is a length of time without end.
const Forever = time.Duration(math.MaxInt64)

// The texts of Forever: that of this API, and the largest TimeSpan of .NET, which the official
// administration API uses for it.
const (
	foreverText  = "forever"
	timeSpanText = "P10675199DT2H48M5.4775807S"
)

// Lengths of the units. A year and a month have those that .NET gives them.
const (
	isoDay   = 24 * time.Hour
	isoWeek  = 7 * isoDay
	isoMonth = 30 * isoDay
	isoYear  = 365 * isoDay
)

// isoNanoseconds parses P[nY][nM][nW][nD][T[nH][nM][nS]] (ISO 8601-1, 5.5.2) into nanoseconds of any number;
// each part may have a fraction. The text begins with P.
func isoNanoseconds(text string) (float64, error) {
	bad := fmt.Errorf("%q is not a duration: write it like 30s or PT30S", text)
	date, clock, hasClock := strings.Cut(text[1:], "T")
	days, err := isoParts(date, "YMWD", isoYear, isoMonth, isoWeek, isoDay)
	if err != nil {
		return 0, bad
	}
	hours, err := isoParts(clock, "HMS", time.Hour, time.Minute, time.Second)
	if err != nil {
		return 0, bad
	}
	if date == "" && clock == "" || hasClock && clock == "" {
		return 0, bad
	}
	return days + hours, nil
}

// isoParts adds up the numbers of text, each followed by one of the units, which have these lengths, in their
// order. The sum is in nanoseconds.
func isoParts(text, units string, lengths ...time.Duration) (float64, error) {
	total, next := 0.0, 0
	for text != "" {
		end := strings.IndexAny(text, units[next:])
		if end < 0 {
			return 0, strconv.ErrSyntax
		}
		// ParseFloat also accepts signs, exponents, "inf" and hexadecimal.
		if strings.Trim(text[:end], "0123456789.") != "" {
			return 0, strconv.ErrSyntax
		}
		number, err := strconv.ParseFloat(text[:end], 64)
		if err != nil {
			return 0, err
		}
		unit := next + strings.IndexByte(units[next:], text[end])
		total += number * float64(lengths[unit])
		next, text = unit+1, text[end+1:]
	}
	return total, nil
}
