package cli

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormatsCommand(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed_command.golden", []golden.Format{
		{Name: "delete", Of: deleted{}},
	})
}
