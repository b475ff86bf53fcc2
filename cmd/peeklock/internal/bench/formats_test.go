package bench

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

// TestPrintedReportFormat checks the names in the output of --output json, because scripts depend on them.
func TestPrintedReportFormat(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "bench", Of: benchResult{}},
	})
}
