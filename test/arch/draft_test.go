package arch

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// The draft whose golden files were recorded, and their hash.
const (
	recordedDraft  = 15
	recordedHash   = "29be6aafe973e685bb7586ad843561b7"
	goldenFilesMin = 60
)

// TestDraftRisesWithTheFormats checks that fsm.FormatDraft rises with each change of a format until release 0.1.0.
func TestDraftRisesWithTheFormats(t *testing.T) {
	t.Parallel()
	// The golden files of what is stored, and of what members send to each other.
	golden := regexp.MustCompile(`^(fsm/testdata/formats/.*\.hex|(partition|cluster)/.*\.golden|cluster/datadir/testdata/member\.json|cmd/.*/stored\.golden)$`)
	root := os.DirFS(filepath.Join("..", ".."))
	var names []string
	for _, folder := range []string{"fsm", "partition", "cluster", "cmd"} {
		kit.OK(t, fs.WalkDir(root, folder, func(path string, _ fs.DirEntry, err error) error {
			if golden.MatchString(path) {
				names = append(names, path)
			}
			return err
		}))
	}
	if len(names) < goldenFilesMin {
		t.Fatalf("found %d golden files, want at least %d", len(names), goldenFilesMin)
	}
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		content := kit.Must(fs.ReadFile(root, name))(t)
		one := sha256.Sum256(content)
		_, _ = all.Write(append([]byte(name), one[:]...))
	}
	switch hash := hex.EncodeToString(all.Sum(nil)[:16]); {
	case hash == recordedHash && fsm.FormatDraft == recordedDraft:
	case fsm.FormatDraft == recordedDraft:
		t.Errorf("a golden file of a format has changed and fsm.FormatDraft has not: raise it to %d, write the golden files again, and run this test for the hash to record", fsm.FormatDraft+1)
	default:
		t.Errorf("record draft %d and hash %q in this file", fsm.FormatDraft, hash)
	}
}
