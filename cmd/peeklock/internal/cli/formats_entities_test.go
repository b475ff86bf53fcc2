package cli

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormatsEntities(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed_entities.golden", []golden.Format{
		{Name: "import", Of: imported{}},
		{Name: "key list", Of: []listedKey(nil)},
	})
}
