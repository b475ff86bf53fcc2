package quantity

import (
	"testing"
	"time"
)

// TestQuantitiesAreWrittenAsTheyAreRead checks that a value which a flag shows can be given to it.
func TestQuantitiesAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"30s": "30s", "PT30S": "30s", "P1D": "24h", "90m": "1h30m", "0": "0", "0s": "0", "1h0m1s": "1h0m1s", "PT0.5S": "500ms"} {
		var d, again Duration
		if err := d.Set(text); err != nil || d.String() != want {
			t.Errorf("%s: got %s, %v, want %s", text, d, err, want)
		}
		if err := again.Set(d.String()); err != nil || again != d {
			t.Errorf("%s is written as %s, which is read as %s, %v", text, d, again, err)
		}
	}
	d := Duration(time.Second)
	for _, text := range []string{"", "5", "-1s", "soon", "forever", "P10675199DT2H48M5.4775807S", "1 s"} {
		if err := d.Set(text); err == nil || d != Duration(time.Second) {
			t.Errorf("%q was read as %s", text, d)
		}
	}
	b := Bytes(1)
	if err := b.Set("64MB"); err == nil || b != 1 {
		t.Errorf("64MB was read as %s", b)
	}
	if err := b.Set("65536"); err != nil || b.String() != "64KiB" {
		t.Errorf("65536: got %s, %v, want 64KiB", b, err)
	}
}
