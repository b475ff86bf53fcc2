package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
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
	kit.OK(t, f.Close())
	if f, err = Open(nil, dir); err != nil || f.Identity().Member != id {
		t.Fatalf("opened again: %v, %v", f, err)
	}
	kit.OK(t, f.Update(func(i *Identity) { i.Cluster = "X" }))
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
		kit.OK(t, os.WriteFile(path, []byte(content), 0o600))
		if _, err := Open(nil, dir); err == nil || (name != "invalid" && !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	kit.OK(t, os.WriteFile(filepath.Join(dir, "raft.db"), nil, 0o600))
	kit.OK(t, os.Remove(path))
	if _, err := Open(nil, dir); err == nil || !strings.Contains(err.Error(), "member.json is missing") {
		t.Fatalf("a log without an identity: %v", err)
	}
}

// The root of a new ext4 volume has a folder lost+found; a restore into it must work, as the start of a new member does. Any
// other content is somebody's.
func TestNewFolderMayBeTheRootOfAVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kit.OK(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	f := kit.Must(Create(nil, dir))(t)
	_ = f.Close()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
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
			f := kit.Must(Open(nil, dir))(t)
			if err := f.UseLog(log); err != nil {
				t.Error(err)
			}
			if id, err := ReadIdentity(dir); err != nil || id.Log != log {
				t.Errorf("member.json has %q, want %q: %v", id.Log, log, err)
			}
			if err := f.UseLog(other); !errors.Is(err, ErrOtherLog) || !strings.Contains(err.Error(), "--log-store "+string(log)) {
				t.Errorf("%s instead of %s: %v", other, log, err)
			}
			kit.OK(t, f.Close())
		}
	}
}

// unreadable is a disk that cannot read a file.
type unreadable struct {
	disk.OS

	file  string
	times int // for so many tries
}

func (d *unreadable) ReadFile(path string) ([]byte, error) {
	if filepath.Base(path) == d.file && d.times > 0 {
		d.times--
		return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EIO}
	}
	return d.OS.ReadFile(path)
}

// An identity that cannot be read refuses the start and says what to do. It is never replaced: the member has voted under its name. An
// error that passes harms nothing.
func TestUnreadableIdentityIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := kit.Must(Open(nil, dir))(t)
	want := f.Identity()
	for times, refused := range map[int]bool{0: false, 1: false, 1 << 30: true} {
		kit.OK(t, f.Close())
		bad, err := Open(&unreadable{file: identityFile, times: times}, dir)
		switch {
		case refused:
			if !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), "put back "+filepath.Join(dir, identityFile)) {
				t.Errorf("%d errors: got %v, want one that says what to put back", times, err)
			}
		case err != nil:
			t.Fatalf("%d errors: %v", times, err)
		default:
			_ = bad.Close()
		}
		if f, err = Open(nil, dir); err != nil {
			t.Fatal(err)
		}
		if got := f.Identity(); got.Member != want.Member {
			t.Errorf("after %d errors the member is %s, want %s", times, got.Member, want.Member)
		}
	}
	kit.OK(t, f.Close())
}
