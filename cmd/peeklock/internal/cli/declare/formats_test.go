package declare

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "export", Of: Document{}},
		{Name: "apply, diff", Of: Answer{}},
	}, entity.Value{Value: filter.Int(-7)}, entity.Duration(90*time.Second))
}
