package entities

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "import", Of: imported{}},
		{Name: "key list", Of: []listedKey(nil)},
		{Name: "namespace show, usage", Of: usageOfLimits{}},
	})
}
