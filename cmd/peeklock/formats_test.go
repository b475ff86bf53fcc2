package main

import (
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/golden"
)

// TestStoredFilesKeepTheirFormat checks the formats of files, because later releases read the files.
func TestStoredFilesKeepTheirFormat(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/stored.golden", []golden.Format{
		{Name: "dev.json", Of: devFile{}},
	})
}

// TestJSONOutputKeepsItsNames checks the names in the output of --output json, because scripts depend on them.
func TestJSONOutputKeepsItsNames(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "config show", Of: []config.Value(nil)},
		{Name: "dev", Of: devReady{}},
		{Name: "emulator", Of: emulatorReady{}},
		{Name: "clock advance", Of: clockAdvanced{}},
	})
}
