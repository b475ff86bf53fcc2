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
		{Name: "manifest of a backup", Of: backupManifest{}},
		{Name: "dev.json", Of: devFile{}},
	})
}

// TestPrintedFormats: scripts key on the names in what is printed with --output json.
func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "bench", Of: benchResult{}},
		{Name: "cluster backup", Of: backedUp{}},
		{Name: "cluster verify", Of: verified{}},
		{Name: "restore", Of: restored{}},
		{Name: "config show", Of: []config.Value(nil)},
		{Name: "dev", Of: devReady{}},
		{Name: "delete", Of: deleted{}},
		{Name: "key list", Of: []listedKey(nil)},
		{Name: "message", Of: shownMessage{}},
		{Name: "message purge", Of: purged{}},
		{Name: "message redrive", Of: redriven{}},
		{Name: "message schedule", Of: scheduled{}},
		{Name: "message cancel", Of: cancelled{}},
		{Name: "message send", Of: sent{}},
		{Name: "member", Of: memberDone{}},
		{Name: "member remove, dry run", Of: removalPlan{}},
		{Name: "partition show", Of: partitionInfo{}},
		{Name: "partition", Of: partitionDone{}},
		{Name: "rebalance", Of: rebalanced{}},
		{Name: "version", Of: versionInfo{}},
	})
}
