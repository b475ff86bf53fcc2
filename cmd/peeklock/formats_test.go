package main

import (
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/golden"
)

// TestStoredFormats: what the commands keep in files is read by later releases.
func TestStoredFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/stored.golden", []golden.Format{
		{Name: "dev.json", Of: devFile{}},
	})
}

// TestPrintedFormats: scripts key on the names in what is printed with --output json.
func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "config show", Of: []config.Value(nil)},
		{Name: "dev", Of: devReady{}},
	})
}
