package output

import (
	"fmt"
	"strings"
	"time"
)

// BytesText returns a size with a unit, as "1.5 GiB".
func BytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, 0
	for value >= unit && prefix < 4 {
		value /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[prefix])
}

// Printable makes text safe for a terminal: it escapes control characters and cuts the text after charactersMax
// characters.
func Printable(s string, charactersMax int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > charactersMax {
			b.WriteString("...")
			break
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\ufffd' {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// SignedBytesText is BytesText for a signed number; a negative number counts as 0.
func SignedBytesText(n int64) string { return BytesText(uint64(max(0, n))) }

// TimeText returns a time for a table.
func TimeText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

// SinceText returns an age for a table.
func SinceText(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// TextOf returns the text to which s points, or "" if s is nil.
func TextOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
