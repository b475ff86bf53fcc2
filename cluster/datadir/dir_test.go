package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
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
		"format 3":                      `{"format":3,"member":"` + string(id) + `"}`,
		"Start over in an empty folder": `{"version":2,"member":"` + string(id) + `","log":"journal"}`,
		"it has draft 0 of":             fmt.Sprintf(`{"format":%d,"member":"%s"}`, identityFormat, id),
		"start the build that wrote it": fmt.Sprintf(`{"format":%d,"draft":%d,"member":"%s"}`, identityFormat, fsm.FormatDraft+1, id),
		`the log store is "rocks"`:      fmt.Sprintf(`{"format":%d,"draft":%d,"member":"%s","log":"rocks"}`, identityFormat, fsm.FormatDraft, id),
		"is not":                        fmt.Sprintf(`{"format":%d,"draft":%d,"member":"../../etc"}`, identityFormat, fsm.FormatDraft),
		"not ours":                      strings.Repeat("x", identityBytesMax+1),
		"invalid":                       `{`,
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

// The first start records the log of the folder before the log exists, and a start with another one is refused from then on.
func TestFolderKeepsItsLog(t *testing.T) {
	t.Parallel()
	for log, other := range map[Log]Log{BoltLog: JournalLog, JournalLog: BoltLog} {
		dir := filepath.Join(t.TempDir(), "new")
		for range 2 {
			f, err := Open(nil, dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.UseLog(log); err != nil {
				t.Error(err)
			}
			if id, err := ReadIdentity(dir); err != nil || id.Log != log {
				t.Errorf("member.json has %q, want %q: %v", id.Log, log, err)
			}
			if err := f.UseLog(other); !errors.Is(err, ErrOtherLog) || !strings.Contains(err.Error(), "--log-store "+string(log)) {
				t.Errorf("%s instead of %s: %v", other, log, err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
