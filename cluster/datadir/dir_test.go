package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDataFolderKeepsItsIdentityAndIsLocked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	f, err := Open(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	id := f.Identity().Member
	if _, err := Open(nil, dir); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Fatalf("locked: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = Open(nil, dir); err != nil || f.Identity().Member != id {
		t.Fatalf("opened again: %v, %v", f, err)
	}
	if err := f.Update(func(i *Identity) { i.Cluster = "X" }); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	// A member of a cluster without its log would vote with an empty memory.
	if _, err := Open(nil, dir); err == nil || !strings.Contains(err.Error(), "raft.db is missing") {
		t.Fatalf("without its log: %v", err)
	}
	path := filepath.Join(dir, "member.json")
	for name, content := range map[string]string{
		"version":  `{"version":3,"member":"` + string(id) + `"}`,
		"is not":   `{"version":1,"member":"../../etc"}`,
		"not ours": strings.Repeat("x", identityBytesMax+1),
		"invalid":  `{`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(nil, dir); err == nil || (name != "invalid" && !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(nil, dir); err == nil || !strings.Contains(err.Error(), "member.json is missing") {
		t.Fatalf("a log without an identity: %v", err)
	}
}

// The root of a new ext4 volume has a folder lost+found; a restore into it must work, as the start of a new member does. Any
// other content is somebody's.
func TestNewFolderMayBeTheRootOfAVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := Create(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(nil, dir); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a folder with a file: %v", err)
	}
}

// A journal is recorded before the log exists, in a version that older binaries refuse, and a start without it is refused
// from then on.
func TestFolderKeepsItsJournal(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	for _, log := range []Log{BoltLog, BoltLog, JournalLog, JournalLog} {
		f, err := Open(nil, dir)
		if err != nil {
			t.Fatal(err)
		}
		if kind, err := f.UseLog(log); err != nil || kind != log {
			t.Fatal(err)
		}
		if version := f.Identity().Version; (version == 2) != (log == JournalLog) {
			t.Errorf("version %d with %s", version, log)
		}
		if _, err := f.UseLog(BoltLog); log == JournalLog && (!errors.Is(err, ErrOtherLog) || !strings.Contains(err.Error(), "--log-store journal")) {
			t.Errorf("bolt instead of a journal: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Update(func(i *Identity) { i.SetLog(BoltLog) }); err != nil {
		t.Fatal(err)
	}
	if id := f.Identity(); id.Version != 1 || id.Log != "" {
		t.Errorf("after a journal: %+v", id)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Without a choice, a new member gets a journal. The folder of an older release gets one at the first start at which no
// release that knows no journal can read the format level of the cluster.
func TestJournalIsTheDefaultUnlessAnOlderReleaseMayOpenTheFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hasLog bool
		level  uint32
		want   Log
	}{
		"new":                    {false, 0, JournalLog},
		"founding":               {true, 0, BoltLog},
		"older level":            {true, journalLevel - 1, BoltLog},
		"level with the journal": {true, journalLevel, JournalLog},
	} {
		dir := t.TempDir()
		f, err := Open(nil, dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.hasLog {
			err = os.WriteFile(f.LogPath(), nil, 0o600)
		}
		if err := errors.Join(err, f.Update(func(i *Identity) { i.Level = c.level })); err != nil {
			t.Fatal(err)
		}
		for range 2 { // also once it is recorded
			if got, err := f.UseLog(""); got != c.want || err != nil {
				t.Errorf("%s: %s, %v", name, got, err)
			}
			if got := f.Identity().Log; got != c.want && (got != "" || c.want != BoltLog) {
				t.Errorf("%s: member.json names %q", name, got)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
