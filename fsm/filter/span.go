package filter

import (
	"math"
	"strconv"
	"strings"
)

// Ticks of 100 ns, in which .NET counts time.
const (
	ticksPerMillisecond = 10_000
	ticksPerSecond      = 1000 * ticksPerMillisecond
	ticksPerMinute      = 60 * ticksPerSecond
	ticksPerHour        = 60 * ticksPerMinute
	ticksPerDay         = 24 * ticksPerHour
)

// ParseSpan parses a time span in the form of .NET, [-][d.]hh:mm[:ss[.fffffff]], or of ISO 8601, [-]P[nW][nD][T[nH][nM][nS]].
// Digits of the seconds beyond 100 ns are dropped. ok is false for another text, and for a span that does not fit 64 bits of
// ticks.
func ParseSpan(text string) (v Value, ok bool) {
	digits, negative := strings.CutPrefix(text, "-")
	var ticks uint64
	if strings.HasPrefix(digits, "P") {
		ticks, ok = isoTicks(digits[1:])
	} else {
		ticks, ok = clockTicks(digits)
	}
	switch {
	case !ok:
	case negative && ticks <= 1<<63:
		return Span(int64(-ticks)), true
	case !negative && ticks <= math.MaxInt64:
		return Span(int64(ticks)), true
	}
	return Value{}, false
}

// isoTicks parses a span of ISO 8601 behind the P.
func isoTicks(text string) (ticks uint64, ok bool) {
	date, clock, hasClock := strings.Cut(text, "T")
	if date == "" && clock == "" || hasClock && clock == "" {
		return 0, false
	}
	ticks, rest := uint64(0), date
	for _, unit := range [...]struct {
		letter byte
		ticks  uint64
	}{{'W', 7 * ticksPerDay}, {'D', ticksPerDay}, {'T', 0}, {'H', ticksPerHour}, {'M', ticksPerMinute}, {'S', ticksPerSecond}} {
		if unit.letter == 'T' {
			if rest != "" {
				return 0, false
			}
			rest = clock
			continue
		}
		number, behind, found := strings.Cut(rest, string(unit.letter))
		if !found {
			continue
		}
		part, ok := countTicks(number, unit.ticks)
		if !ok || ticks+part < ticks {
			return 0, false
		}
		ticks, rest = ticks+part, behind
	}
	return ticks, rest == ""
}

// clockTicks parses a span of .NET without its sign.
func clockTicks(text string) (ticks uint64, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, false
	}
	if days, hours, found := strings.Cut(parts[0], "."); found {
		parts[0] = hours
		if ticks, ok = countTicks(days, ticksPerDay); !ok || strings.Contains(hours, ".") {
			return 0, false
		}
	}
	for i, unit := range [...]struct{ ticks, most uint64 }{{ticksPerHour, 24}, {ticksPerMinute, 60}, {ticksPerSecond, 60}} {
		if i == len(parts) {
			break
		}
		part, ok := countTicks(parts[i], unit.ticks)
		if !ok || part >= unit.most*unit.ticks || unit.ticks != ticksPerSecond && strings.Contains(parts[i], ".") || ticks+part < ticks {
			return 0, false
		}
		ticks += part
	}
	return ticks, true
}

// countTicks returns the ticks of a decimal number of a unit.
func countTicks(number string, unit uint64) (ticks uint64, ok bool) {
	whole, fraction, found := strings.Cut(number, ".")
	if found && fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(whole, 10, 64)
	if err != nil || n > math.MaxUint64/unit {
		return 0, false
	}
	ticks = n * unit
	for i := 0; i < len(fraction) && unit > 0; i++ {
		part := unit * uint64(fraction[i]-'0') / 10
		if ticks+part < ticks {
			return 0, false
		}
		ticks, unit = ticks+part, unit/10
	}
	return ticks, true
}

// clockText returns a span as System.TimeSpan.ToString does: [-][d.]hh:mm:ss[.fffffff].
func clockText(ticks int64) string {
	size := magnitude(ticks)
	var out []byte
	if ticks < 0 {
		out = append(out, '-')
	}
	if days := size / ticksPerDay; days > 0 {
		out = append(strconv.AppendUint(out, days, 10), '.')
	}
	out = append(appendDigits(out, size/ticksPerHour%24, 2), ':')
	out = append(appendDigits(out, size/ticksPerMinute%60, 2), ':')
	out = appendDigits(out, size/ticksPerSecond%60, 2)
	if rest := size % ticksPerSecond; rest > 0 {
		out = appendDigits(append(out, '.'), rest, 7)
	}
	return string(out)
}

// ISO returns a time span in the form of ISO 8601 that XmlConvert writes, such as P1DT2H3M4.5S; PT0S for other kinds.
func (v Value) ISO() string {
	if v.kind != KindSpan || v.bits == 0 {
		return "PT0S"
	}
	size := magnitude(int64(v.bits))
	var out []byte
	if int64(v.bits) < 0 {
		out = append(out, '-')
	}
	out = append(out, 'P')
	if days := size / ticksPerDay; days > 0 {
		out = append(strconv.AppendUint(out, days, 10), 'D')
	}
	if size%ticksPerDay == 0 {
		return string(out)
	}
	out = append(out, 'T')
	if hours := size / ticksPerHour % 24; hours > 0 {
		out = append(strconv.AppendUint(out, hours, 10), 'H')
	}
	if minutes := size / ticksPerMinute % 60; minutes > 0 {
		out = append(strconv.AppendUint(out, minutes, 10), 'M')
	}
	if seconds, rest := size/ticksPerSecond%60, size%ticksPerSecond; seconds > 0 || rest > 0 {
		out = strconv.AppendUint(out, seconds, 10)
		if rest > 0 {
			out = append(out, '.')
			for unit := uint64(ticksPerSecond / 10); rest > 0; unit /= 10 {
				out, rest = append(out, '0'+byte(rest/unit)), rest%unit
			}
		}
		out = append(out, 'S')
	}
	return string(out)
}

// magnitude returns |n|, of the smallest integer too.
func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// appendDigits appends a number with leading zeros.
func appendDigits(dst []byte, n uint64, width int) []byte {
	at := len(dst) + width
	for range width {
		dst = append(dst, '0')
	}
	for i := at - 1; i >= at-width; i-- {
		dst[i], n = '0'+byte(n%10), n/10
	}
	return dst
}

// The first and the last millisecond of System.DateTime: the years 1 to 9999.
const (
	dateMin = -62_135_596_800_000
	dateMax = 253_402_300_799_999
)

// parseTime parses a timestamp of ISO 8601 as XML Schema writes it, 2026-11-20T12:00:00[.fffffff][Z|+hh:mm]; without a zone it is
// UTC. Digits beyond a millisecond are dropped.
func parseTime(text string) (Value, bool) {
	var n [6]int
	rest := text
	for i, part := range [...]struct {
		digits, from, to int
		behind           string
	}{{4, 1, 9999, "-"}, {2, 1, 12, "-"}, {2, 1, 31, "T"}, {2, 0, 23, ":"}, {2, 0, 59, ":"}, {2, 0, 59, ""}} {
		var ok bool
		if n[i], rest, ok = cutDigits(rest, part.digits); !ok || n[i] < part.from || n[i] > part.to || !strings.HasPrefix(rest, part.behind) {
			return Value{}, false
		}
		rest = rest[len(part.behind):]
	}
	if n[2] > daysOfMonth(n[0], n[1]) {
		return Value{}, false
	}
	milliseconds, rest, ok := cutMilliseconds(rest)
	if !ok {
		return Value{}, false
	}
	minutes, ok := zoneMinutes(rest)
	at := ((int64(daysBefore(n[0], n[1])+n[2]-1)*24+int64(n[3]))*60+int64(n[4])-int64(minutes))*60 + int64(n[5])
	ms := dateMin + at*1000 + int64(milliseconds)
	return Time(ms), ok && dateMin <= ms && ms <= dateMax
}

// cutDigits reads a number of exactly so many digits.
func cutDigits(text string, digits int) (n int, rest string, ok bool) {
	if len(text) < digits || strings.Trim(text[:digits], "0123456789") != "" {
		return 0, text, false
	}
	n, err := strconv.Atoi(text[:digits])
	return n, text[digits:], err == nil
}

// cutMilliseconds reads a fraction of a second, if there is one.
func cutMilliseconds(text string) (n int, rest string, ok bool) {
	fraction, found := strings.CutPrefix(text, ".")
	if !found {
		return 0, text, true
	}
	rest = strings.TrimLeft(fraction, "0123456789")
	digits := fraction[:len(fraction)-len(rest)]
	for i := range 3 {
		n *= 10
		if i < len(digits) {
			n += int(digits[i] - '0')
		}
	}
	return n, rest, digits != ""
}

// zoneMinutes reads a time zone: "", Z or a difference from UTC of at most 14 hours.
func zoneMinutes(text string) (minutes int, ok bool) {
	if text == "" || text == "Z" {
		return 0, true
	}
	if text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	hours, rest, ok1 := cutDigits(text[1:], 2)
	rest, colon := strings.CutPrefix(rest, ":")
	minutes, rest, ok2 := cutDigits(rest, 2)
	ok2 = ok2 && minutes < 60
	minutes += 60 * hours
	if text[0] == '-' {
		minutes = -minutes
	}
	return minutes, ok1 && colon && ok2 && rest == "" && hours <= 14
}

// daysBefore returns the days from the first of January of year 1 to the first of a month (Gregorian calendar).
func daysBefore(year, month int) (days int) {
	y := year - 1
	days = 365*y + y/4 - y/100 + y/400
	for m := 1; m < month; m++ {
		days += daysOfMonth(year, m)
	}
	return days
}

func daysOfMonth(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
