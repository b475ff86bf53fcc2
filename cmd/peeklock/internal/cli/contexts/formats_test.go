package contexts

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestStoredFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/contexts.golden", []golden.Format{{Name: "contexts", Of: Set{}}})
}
