package entity

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Duration is a length of time that is parsed from "30s" or "PT30S" and written as "30s"; [Forever] is
// "forever".
type Duration time.Duration

// String is the form of time.Duration, or "forever".
func (d Duration) String() string {
	if d == Duration(Forever) {
		return foreverText
	}
	return time.Duration(d).String()
}

// MarshalJSON writes the text of String.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON parses text; a bare number is refused, because it does not tell its unit.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a duration is text like \"30s\", not %.40s", data)
	}
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}

// ParseDuration parses a length of time in the form of Go ("1m30s") or of ISO 8601 ("PT1M30S", "P1D"), which the
// official administration API uses. Negative lengths are refused. "forever" is Forever.
func ParseDuration(text string) (time.Duration, error) {
	if len(text) > durationBytesMax {
		return 0, fmt.Errorf("a duration is at most %d characters long", durationBytesMax)
	}
	if text == foreverText {
		return Forever, nil
	}
	if strings.HasPrefix(text, "P") {
		d, err := parseISODuration(text)
		return time.Duration(d), err
	}
	d, err := time.ParseDuration(text) //nolint:forbidigo // the one place
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration: write it like 30s or PT30S", text)
	}
	return d, nil
}

// parseISODuration parses ISO 8601. Lengths of more than 292 years, which do not fit a Duration, are Forever:
// clients write the largest TimeSpan of .NET in different forms, Java in hours.
func parseISODuration(text string) (Duration, error) {
	if len(text) > durationBytesMax || !strings.HasPrefix(text, "P") {
		return 0, fmt.Errorf("%.70q is not a duration like PT30S", text)
	}
	nanoseconds, err := isoNanoseconds(text)
	if err != nil {
		return 0, err
	}
	if nanoseconds >= math.MaxInt64 {
		return Duration(Forever), nil
	}
	return Duration(nanoseconds), nil
}

// ISO is the form of ISO 8601, as the service writes it: P1DT2H3M4.5S.
func (d Duration) ISO() string {
	if d == Duration(Forever) {
		return timeSpanText
	}
	text, rest := "P", time.Duration(d)
	if days := rest / (24 * time.Hour); days > 0 {
		text += strconv.FormatInt(int64(days), 10) + "D"
		rest %= 24 * time.Hour
	}
	if rest == 0 && text != "P" {
		return text
	}
	text += "T"
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "H"}, {time.Minute, "M"}} {
		if n := rest / unit.length; n > 0 {
			text += strconv.FormatInt(int64(n), 10) + unit.name
			rest %= unit.length
		}
	}
	if rest > 0 || strings.HasSuffix(text, "T") {
		text += strconv.FormatFloat(rest.Seconds(), 'f', -1, 64) + "S"
	}
	return text
}

// ToMillis returns a length of time as the state machine stores it. Forever stays what it is.
func ToMillis(d Duration) fsm.Millis {
	if d == Duration(Forever) {
		return fsm.Forever
	}
	return fsm.Millis(time.Duration(d).Milliseconds())
}

// fromMillis is the opposite of ToMillis.
func fromMillis(m fsm.Millis) Duration {
	if m < fsm.Millis(Forever.Milliseconds()) {
		return Duration(time.Duration(m) * time.Millisecond)
	}
	return Duration(Forever)
}

// ShortDuration is the form of time.Duration without trailing zeros: 5m for 5m0s.
func ShortDuration(d time.Duration) string {
	text := Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if rest, found := strings.CutSuffix(text, zero); found {
			text = rest + zero[:1]
		}
	}
	return text
}
