package doctor

import (
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/condition"
)

func wantFindings(t *testing.T, f condition.Findings, want ...string) {
	t.Helper()
	var got []string
	for _, each := range condition.Sort(f) {
		got = append(got, string(each.Condition)+" "+each.Subject)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestClocksAndCertificatesAsSeenFromHere(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 500, time.UTC)
	wantFindings(t, examineTimes("member a", now, time.Time{}, time.Time{}))
	wantFindings(t, examineTimes("member a", now, now.Add(-30*time.Second), now.Add(15*24*time.Hour)))
	wantFindings(t, examineTimes("member a", now, now.Add(31*time.Second), now.Add(-time.Hour)), "ClientClockOff this machine", "CertificateEnds member a")
	for address, usable := range map[string]bool{"a:5672": true, "10.0.0.1:1": true, "[::1]:1": true, "0.0.0.0:5672": false, "[::]:5672": false, ":5672": false, "": false, "a:0": false} {
		if isUsable(address) != usable {
			t.Errorf("%q: %t", address, !usable)
		}
	}
}
