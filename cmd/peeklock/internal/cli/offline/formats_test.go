package offline

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "raft-log cut", Of: cutLog{}},
		{Name: "raft-log show", Of: shownEntry{}},
		{Name: "raft-log skip", Of: skippedEntry{}},
		{Name: "version", Of: versionInfo{}},
	})
}
