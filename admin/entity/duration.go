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

// ParseDuration parses a length of time in the form of Go ("1m30s") or of ISO 8601 ("PT1M30S", "P1D"), which the
// official administration API uses. Years and months are refused, since their length is not fixed, and
// so are negative lengths. "forever" is Forever.
func ParseDuration(text string) (time.Duration, error) {
	if len(text) > durationBytesMax {
		return 0, fmt.Errorf("a duration is at most %d characters long", durationBytesMax)
	}
	if text == foreverText || text == timeSpanText {
		return Forever, nil
	}
	if strings.HasPrefix(text, "P") {
		return parseISO(text)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration: write it like 30s or PT30S", text)
	}
	return d, nil
}

// parseISO parses ISO 8601 and refuses lengths that do not fit an int64 of nanoseconds.
func parseISO(text string) (time.Duration, error) {
	total, err := isoNanoseconds(text)
	if err == nil && total >= math.MaxInt64 {
		err = fmt.Errorf("%q is longer than 292 years", text)
	}
	return time.Duration(total), err
}

// isoNanoseconds parses P[nW][nD][T[nH][nM][nS]] (ISO 8601-1, 5.5.2) into nanoseconds of any number;
// each part may have a fraction. The text begins with P.
func isoNanoseconds(text string) (float64, error) {
	bad := fmt.Errorf("%q is not a duration: write it like 30s or PT30S", text)
	date, clock, hasClock := strings.Cut(text[1:], "T")
	days, err := isoParts(date, "WD")
	if err != nil {
		return 0, bad
	}
	hours, err := isoParts(clock, "HMS")
	if err != nil {
		return 0, bad
	}
	if date == "" && clock == "" || hasClock && clock == "" {
		return 0, bad
	}
	return days + hours, nil
}

// isoParts adds up the numbers of text, each followed by one of the units, in their
// order. The sum is in nanoseconds.
func isoParts(text, units string) (float64, error) {
	total := 0.0
	for text != "" {
		end := strings.IndexAny(text, units)
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
		total += number * float64(isoUnit(text[end]))
		units = units[strings.IndexByte(units, text[end])+1:]
		text = text[end+1:]
	}
	return total, nil
}

func isoUnit(letter byte) time.Duration {
	const day = 24 * time.Hour
	switch letter {
	case 'W':
		return 7 * day
	case 'D':
		return day
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	}
	return time.Second
}
