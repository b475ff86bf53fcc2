package bench

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

// TestPrintedReportFormat: scripts key on the names in what is printed with --output json.
func TestPrintedReportFormat(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "bench", Of: benchResult{}},
	})
}
