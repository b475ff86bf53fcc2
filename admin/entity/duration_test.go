package entity

import (
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Clients write the largest TimeSpan of .NET in different forms.
func TestISODurationsOfClientsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		timeSpanText: Forever, "PT256204778H48M5.4775807S": Forever, "P10675199DT2H48M5.477581S": Forever, "P106752D": Forever,
		"PT1M": time.Minute, "P1DT2H3M4.5S": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond, "PT0S": 0, "P1W": 7 * 24 * time.Hour,
	} {
		if got, err := parseISODuration(text); err != nil || got != Duration(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for want, d := range map[string]time.Duration{
		timeSpanText: Forever, "PT0S": 0, "P1D": 24 * time.Hour, "P1DT1H": 25 * time.Hour, "PT1H1M": 61 * time.Minute, "PT0.001S": time.Millisecond,
	} {
		if got := Duration(d).ISO(); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestDurationsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1m30s": 90 * time.Second, "PT30S": 30 * time.Second, "PT1M30.5S": 90*time.Second + 500*time.Millisecond,
		"P1D": 24 * time.Hour, "P1M": 30 * 24 * time.Hour, "P1Y": 365 * 24 * time.Hour, "P1Y2M3DT4M": 428*24*time.Hour + 4*time.Minute, "P1DT1H": 25 * time.Hour, "P2W": 14 * 24 * time.Hour, "PT5M": 5 * time.Minute, "0s": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "30", "-1s", "P", "PT", "P1", "PS", "PT1S1M", "P1D1M", "P1M1Y", "PT1Y", "P1DT", "PT-1S", "PT1e9S", "PTinfS", "30 s", strings.Repeat("1", durationBytesMax) + "s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q reads as %s", text, got)
		}
	}
}

func TestForeverIsKept(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"forever": Forever, "P10675199DT2H48M5.4775807S": Forever, "P10675199DT2H48M5.477S": Forever, "P99999999999999W": Forever, "PT0.5S": time.Second / 2, "0": 0,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	if got := fromMillis(fsm.Forever); got.String() != "forever" || ToMillis(got) != fsm.Forever {
		t.Error(got)
	}
	if got := fromMillis(1500); ToMillis(got) != 1500 {
		t.Error(got)
	}
}
