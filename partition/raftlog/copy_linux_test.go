package raftlog

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// On a full disk a log opens after a crash, although its file cannot be written again, and a file that is known to be damaged does not.
func TestLogOpensOnAFullDisk(t *testing.T) {
	t.Parallel()
	_, killed, closed := stopLogs(t)
	dir := kit.SmallDisk(t, "1m")
	path, filler := filepath.Join(dir, "log", "raft.db"), filepath.Join(dir, "filler")
	open := func(s *stoppedLog) (map[string]string, error) {
		s.write(t, path)
		if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !disk.IsNoSpace(err) {
			t.Fatalf("the disk is not full: %v", err)
		}
		got, err := openStopped(t, path)
		if kit.CountFiles(t, filepath.Dir(path), "*"+freshSuffix) > 0 {
			t.Error("a file is left that takes space")
		}
		kit.OK(t, os.Remove(filler))
		return got, err
	}
	if got, err := open(&killed); err != nil || !maps.Equal(got, killed.values) {
		t.Errorf("%v: %v", err, got)
	}
	closed.bolt = flipped(closed.bolt, 8*3*os.Getpagesize())
	if _, err := open(&closed); !disk.IsNoSpace(err) {
		t.Errorf("a damaged file: %v", err)
	}
	closed.checkRestored(t, path, "with space")
}
