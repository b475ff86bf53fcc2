package cli

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

// TestBackupManifestFormat checks the format because later releases restore the backups of this one.
func TestBackupManifestFormat(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/stored.golden", []golden.Format{
		{Name: "manifest of a backup", Of: backupManifest{}},
	})
}

// TestPrintedAnswerFormats checks the names in the output of --output json, because scripts depend on them.
func TestPrintedAnswerFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "cluster backup", Of: backedUp{}},
		{Name: "cluster verify", Of: verified{}},
		{Name: "import", Of: imported{}},
		{Name: "restore", Of: restored{}},
		{Name: "delete", Of: deleted{}},
		{Name: "key list", Of: []listedKey(nil)},
		{Name: "message", Of: ShownMessage{}},
		{Name: "message purge", Of: purged{}},
		{Name: "message redrive", Of: redriven{}},
		{Name: "message schedule", Of: Scheduled{}},
		{Name: "message cancel", Of: cancelled{}},
		{Name: "message send", Of: sent{}},
		{Name: "member", Of: memberDone{}},
		{Name: "member remove, dry run", Of: removalPlan{}},
		{Name: "partition show", Of: PartitionInfo{}},
		{Name: "partition", Of: partitionDone{}},
		{Name: "raft-log cut", Of: cutLog{}},
		{Name: "rebalance", Of: rebalanced{}},
		{Name: "version", Of: versionInfo{}},
	})
}

// TestSentFormats checks what others read: Kubernetes refuses events with other names.
func TestSentFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/sent.golden", []golden.Format{{Name: "event of Kubernetes", Of: podEvent{}}})
}
