package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// removedFolder makes the data folder of a member that was removed, with a log and a replica.
func removedFolder(t *testing.T, dir, log string) Identity {
	t.Helper()
	f := kit.Must(Open(nil, dir))(t)
	defer func() { _ = f.Close() }()
	for _, name := range []string{logName, logCopyName} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(log), 0o600))
	}
	for _, folder := range []string{f.ReplicaPath(1, 1), filepath.Join(dir, journalName)} {
		kit.OK(t, os.MkdirAll(folder, 0o750))
	}
	kit.OK(t, f.Update(func(id *Identity) { id.Removed = true }))
	return f.Identity()
}

// setAside sets aside a removed member, if there is one.
func setAside(t *testing.T, dir string, want bool) {
	t.Helper()
	if moved, err := SetAsideRemoved(dir); err != nil || moved != want {
		t.Fatal(moved, err)
	}
}

// checkKept checks what the folder of the last removed member holds, and that the data folder holds no member.
func checkKept(t *testing.T, dir, log string) {
	t.Helper()
	kept := filepath.Join(dir, asideName)
	for _, name := range []string{logName, logCopyName} {
		if text, err := os.ReadFile(filepath.Join(kept, name)); err != nil || string(text) != log {
			t.Errorf("%s: %q, want %q: %v", name, text, log, err)
		}
	}
	if id, err := ReadIdentity(kept); err != nil || !id.Removed {
		t.Error(id, err)
	}
	if _, err := os.Stat(filepath.Join(kept, groupsName, "1.1")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{logName, logCopyName, journalName, identityFile, asideName + ".new"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// Only the data of a removed member is set aside, and that of the last one is kept; a new member can begin there.
func TestTheLastRemovedMemberIsSetAside(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	setAside(t, dir, false) // nothing there
	if _, err := ReadIdentity(dir); err == nil {
		t.Error("a folder that is not there")
	}
	f := kit.Must(Open(nil, dir))(t)
	former := f.Identity().Member
	if _, err := SetAsideRemoved(dir); err == nil {
		t.Error("set aside under a process that runs")
	}
	kit.OK(t, f.Close())
	setAside(t, dir, false) // it is a member
	if id, err := ReadIdentity(dir); err != nil || id.Removed || id.Member != former {
		t.Error(id, err)
	}
	for _, log := range []string{"first", "second"} {
		if id := removedFolder(t, dir, log); id.Member == former && log != "first" {
			t.Error("the new member has the id of the removed one")
		}
		setAside(t, dir, true)
		setAside(t, dir, false)
		checkKept(t, dir, log)
	}
}

// Wherever a crash interrupts it, the data of the removed member is kept in the end, and not that of an earlier one.
func TestInterruptedSettingAsideIsCompleted(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(dir string) error{
		"after the first move": func(dir string) error {
			fresh := filepath.Join(dir, asideName+".new")
			if err := os.Mkdir(fresh, 0o750); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(dir, groupsName), filepath.Join(fresh, groupsName)); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(dir, groupsName), 0o750) // a start without the setting makes it
		},
		"before the record goes": func(dir string) error {
			record, err := os.ReadFile(filepath.Join(dir, identityFile))
			if err != nil {
				return err
			}
			if _, err := SetAsideRemoved(dir); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, identityFile), record, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			removedFolder(t, dir, "first")
			setAside(t, dir, true)
			removedFolder(t, dir, "second")
			kit.OK(t, crash(dir))
			setAside(t, dir, true)
			checkKept(t, dir, "second")
		})
	}
}
