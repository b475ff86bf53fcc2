package filter

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSpansAreParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"00:00:10":                    10 * ticksPerSecond,
		"1:2":                         ticksPerHour + 2*ticksPerMinute,
		"-1.02:03:04.5":               -(ticksPerDay + 2*ticksPerHour + 3*ticksPerMinute + 4*ticksPerSecond + ticksPerSecond/2),
		"00:00:00.0000001":            1,
		"00:00:00.00000019":           1,
		"10675199.02:48:05.4775807":   math.MaxInt64,
		"-10675199.02:48:05.4775808":  math.MinInt64,
		"PT1H":                        ticksPerHour,
		"P1DT2H3M4.5S":                ticksPerDay + 2*ticksPerHour + 3*ticksPerMinute + 4*ticksPerSecond + ticksPerSecond/2,
		"P2W":                         14 * ticksPerDay,
		"-PT0.0000001S":               -1,
		"PT0.5H":                      ticksPerHour / 2,
		"P10675199DT2H48M5.4775807S":  math.MaxInt64,
		"-P10675199DT2H48M5.4775808S": math.MinInt64,
	} {
		if v, ok := ParseSpan(text); !ok || v != Span(want) {
			t.Errorf("ParseSpan(%q) is %d ticks, %v, want %d", text, v.AsInt(), ok, want)
		}
	}
	for _, text := range []string{
		"", "-", "1", "P", "PT", "P1", "P1Y", "P1M", "P1DT", "PT1", "PT1S1M", "P1H", "PT1.S", "PT-1S", "PT1e1S", "PTxS", "p1d", "+PT1S",
		"24:00:00", "00:60:00", "00:00:60", "1:2:3:4", ":00", "00:00:", "1.1.1:00", "1.5:00:00.5.5", "00:0.5:00", "00:00:00.", "--00:00:01",
		"10675199.02:48:05.4775808", "P10675199DT2H48M5.4775808S", "P99999999999999999999D", strings.Repeat("9", 30) + ".00:00:00",
	} {
		if v, ok := ParseSpan(text); ok {
			t.Errorf("ParseSpan(%q) is %v, want it refused", text, v)
		}
	}
}

// Both texts of a span are read as the same span.
func TestSpansAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := Span(rapid.Int64().Draw(t, "ticks"))
		for _, text := range []string{want.String(), want.ISO()} {
			if got, ok := ParseSpan(text); !ok || got != want {
				t.Errorf("%d ticks are written as %q, read as %d ticks, %v", want.AsInt(), text, got.AsInt(), ok)
			}
		}
	})
	for ticks, want := range map[int64][2]string{
		0:                               {"00:00:00", "PT0S"},
		90 * ticksPerSecond:             {"00:01:30", "PT1M30S"},
		-(2*ticksPerDay + ticksPerHour): {"-2.01:00:00", "-P2DT1H"},
		ticksPerDay:                     {"1.00:00:00", "P1D"},
		ticksPerSecond / 4:              {"00:00:00.2500000", "PT0.25S"},
	} {
		if v := Span(ticks); v.String() != want[0] || v.ISO() != want[1] {
			t.Errorf("%d ticks are %q and %q, want %q and %q", ticks, v.String(), v.ISO(), want[0], want[1])
		}
	}
}

// parseTime agrees with the standard library, which the package must not use.
func TestTimesAreParsed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(dateMin, dateMax).Draw(t, "milliseconds"))
		zone := rapid.IntRange(-14*60, 14*60).Draw(t, "zone in minutes")
		text := at.In(time.FixedZone("", 60*zone)).Format("2006-01-02T15:04:05.000Z07:00")
		want, err := time.Parse("2006-01-02T15:04:05.000Z07:00", text)
		got, ok := parseTime(text)
		if ok != (err == nil && want.Year() >= 1) || ok && got != Time(at.UnixMilli()) {
			t.Errorf("parseTime(%q) is %d, %v, want %d", text, got.AsInt(), ok, at.UnixMilli())
		}
	})
	for text, want := range map[string]int64{
		"1970-01-01T00:00:00": 0, "1970-01-01T00:00:00.0019999Z": 1, "1970-01-01T01:00:00+01:00": 0, "1972-02-29T00:00:00.5Z": 68_169_600_500,
	} {
		if v, ok := parseTime(text); !ok || v != Time(want) {
			t.Errorf("parseTime(%q) is %d, %v, want %d", text, v.AsInt(), ok, want)
		}
	}
	for _, text := range []string{
		"", "1970", "1970-01-01", "1970-1-1T00:00:00", "1970-13-01T00:00:00", "1971-02-29T00:00:00", "1900-02-29T00:00:00", "1970-04-31T00:00:00", "1970-01-01T24:00:00",
		"1970-01-01T00:60:00", "1970-01-01T00:00:60", "1970-01-01T00:00:00.Z", "1970-01-01T00:00:00+1", "1970-01-01T00:00:00+15:00", "1970-01-01T00:00:00+01:60",
		"0000-01-01T00:00:00", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "1970-01-01T00:00:00ZZ", "1970-01-01 00:00:00", "-970-01-01T00:00:00",
	} {
		if v, ok := parseTime(text); ok {
			t.Errorf("parseTime(%q) is %d, want it refused", text, v.AsInt())
		}
	}
}

// The properties of a lock are refused in new rules with the names of those that can be used, and stored rules with them parse.
func TestPropertiesOfALockAreRefusedInNewRules(t *testing.T) {
	t.Parallel()
	for text, position := range map[string]int{"sys.LockToken IS NOT NULL": 5, "a = 1 OR sys.lockeduntil > @when": 14} {
		e, err := Parse(text, parameters())
		if err != nil {
			t.Fatal(err)
		}
		var syntax *SyntaxError
		if err := e.Check(); !errors.As(err, &syntax) || syntax.Position != position || !strings.Contains(syntax.Expected, "ContentType") || strings.Contains(syntax.Expected, LockToken) {
			t.Errorf("Check of %q: %v, want the usable names, at character %d", text, err, position)
		}
	}
	a, err := ParseAction("SET a = 1; SET b = sys.LockToken", nil)
	if err != nil || a.Check() == nil {
		t.Errorf("Check of an action with sys.LockToken: no error; %v", err)
	}
	for _, text := range []string{"sys.Label = 'x'", "sys.Nonsense = 1", "LockToken = 1", "user.LockToken = 1"} {
		if e, err := Parse(text, nil); err != nil || e.Check() != nil {
			t.Errorf("Check of %q: %v, want none; %v", text, e.Check(), err)
		}
	}
}

// SET a = b names its source only where a keeps the type of b.
func TestSetNamesItsSource(t *testing.T) {
	t.Parallel()
	m := &fake{system: map[string]Value{}, user: map[string]Value{"b": Int(1), "old": Int(2), "null": {}}}
	a, err := ParseAction("SET a = B; SET c = a; SET old = b; SET [null] = b; SET d = b + 0; SET e = (b); SET f = property('b'); SET sys.Label = b; SET g = missing", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Apply(m, m); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(m.kept, ", "), "a from B, c from a, null from b, e from b, g from missing"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
