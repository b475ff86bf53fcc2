package skip

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestMarksOfSkippedEntriesAreStored(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "../testdata/skipped.golden", []golden.Format{{Name: "skipped entry", Of: Entry{}}})
}
