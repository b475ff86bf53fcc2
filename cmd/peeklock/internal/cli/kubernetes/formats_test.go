package kubernetes

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestSentFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/sent.golden", []golden.Format{{Name: "event of Kubernetes", Of: podEvent{}}})
}
