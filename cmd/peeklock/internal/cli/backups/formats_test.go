package backups

import (
	"testing"

	"github.com/peeklock/peeklock/test/golden"
)

func TestBackupManifestFormat(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/stored.golden", []golden.Format{
		{Name: "manifest of a backup", Of: backupManifest{}},
	})
}

func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "cluster backup", Of: backedUp{}},
		{Name: "restore", Of: restored{}},
	})
}
