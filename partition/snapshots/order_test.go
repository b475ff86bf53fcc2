package snapshots

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// An older snapshot that a leader sends is refused, and the newest one is found again whatever the order in
// which the folders were made.
func TestSnapshotsAreOrderedByTermAndIndex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newest := Manifest{Term: 2, Index: 500}
	end := newest.end()
	s := New(Config{Files: disk.OS{}, Dir: dir}, &Snapshot{Manifest: newest}, 1)
	for _, p := range []position{{end.term, end.index - 1}, {end.term - 1, end.index + 1}} {
		if err := s.beginInstall(p); !errors.Is(err, errOlderSnapshot) {
			t.Errorf("%+v after %+v: %v", p, end, err)
		}
		if _, err := s.beginOwn(p); !errors.Is(err, errOlderSnapshot) {
			t.Errorf("%+v after %+v: %v", p, end, err)
		}
	}
	for _, name := range []string{"2-500-1", "2-1-7000", "1-900-8000"} { // the others are older, with higher serials
		kit.OK(t, (disk.OS{}).MkdirAll(filepath.Join(dir, name), disk.FolderMode))
	}
	kit.OK(t, writeManifest(disk.OS{}, filepath.Join(dir, "2-500-1"), newest))
	found, serial, err := Find(disk.OS{}, dir)
	if err != nil || found.end() != end || serial != 8000 {
		t.Error(found, serial, err)
	}
}
