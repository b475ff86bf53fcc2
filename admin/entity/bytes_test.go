package entity

import (
	"math"
	"strings"
	"testing"
)

// TestBytesAreParsed checks the forms of a number of bytes, and that each is written as it can be read again.
func TestBytesAreParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "7B": 7, "1KiB": 1024, "64MiB": 64 << 20, "3 GiB": 3 << 30, "2TiB": 2 << 40, "0KiB": 0, "8388607TiB": 8388607 << 40,
		"9223372036854775807": math.MaxInt64, "1.34217728e+08": 134217728, // as the Helm chart writes it
	} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
		if again, err := ParseBytes(FormatBytes(want)); err != nil || again != want {
			t.Errorf("%d is written as %q, which is read as %d, %v", want, FormatBytes(want), again, err)
		}
	}
	for _, text := range []string{"", " ", "-1", "+1", "1.5GiB", "64MB", "64kB", "64mib", "64M", "MiB", "1e3", "1.5e+00", "1e+300", "NaN", "0x10", "1_000", "8388608TiB", "9223372036854775808", strings.Repeat("0", 33)} {
		if got, err := ParseBytes(text); err == nil || !strings.Contains(err.Error(), "KiB, MiB, GiB or TiB") {
			t.Errorf("%q: got %d, %v, want an error that names the units", text, got, err)
		}
	}
}
