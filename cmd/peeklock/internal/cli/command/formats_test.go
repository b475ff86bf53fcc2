package command

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "--dry-run", Of: Would{}},
		{Name: "delete", Of: deleted{}},
	})
}
