package snapshots

import "testing"

// Sends that fail again and again are not all remembered.
func TestFewSendsAreRemembered(t *testing.T) {
	t.Parallel()
	var s snapshotSends
	for range 2 * snapshotSendsMax {
		s.end(s.begin(1, 0, 1))
	}
	if n := len(s.list); n != snapshotSendsMax {
		t.Errorf("%d sends are remembered, want %d", n, snapshotSendsMax)
	}
}
