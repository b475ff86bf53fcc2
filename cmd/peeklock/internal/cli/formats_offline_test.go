package cli

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormatsOffline(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed_offline.golden", []golden.Format{
		{Name: "raft-log cut", Of: cutLog{}},
		{Name: "version", Of: versionInfo{}},
	})
}
