package savedlog

import (
	"bytes"
	"testing"
)

func TestSavedLogsAreReadStrictly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "1 1 0 a AAAA\n", "peeklock saved log 1, partition 3\n1 1 0 a AAAA", "peeklock saved log 1, partition 3\nx 1 0 a AAAA\n", "peeklock saved log 1, partition 3\n1 1 0 a !\n"} {
		if _, entries, err := Read(bytes.NewBufferString(text)); err == nil {
			t.Errorf("%q was read as %v", text, entries)
		}
	}
}
