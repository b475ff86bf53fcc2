package operate

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "cluster verify", Of: verified{}},
		{Name: "context", Of: contextChange{}},
		{Name: "context list", Of: []listedContext(nil)},
		{Name: "member", Of: memberDone{}},
		{Name: "member remove, dry run", Of: removalPlan{}},
		{Name: "partition show", Of: PartitionInfo{}},
		{Name: "partition", Of: partitionDone{}},
		{Name: "rebalance", Of: rebalanced{}},
	})
}
