package main

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

// TestDocumentsKeepTheirNames checks the names in the documents of a layout, which engines read.
func TestDocumentsKeepTheirNames(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/layout.golden", []golden.Format{
		{Name: "index", Of: index{}}, {Name: "manifest", Of: manifest{}}, {Name: "config", Of: imageConfig{}},
	})
}
