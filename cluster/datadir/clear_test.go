package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/partition"
)

// Only the folder of a removed member is emptied; a new member can begin there.
func TestOnlyTheFolderOfARemovedMemberIsCleared(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	clear := func(want bool) {
		t.Helper()
		if cleared, err := ClearRemoved(dir); err != nil || cleared != want {
			t.Fatal(cleared, err)
		}
	}
	clear(false) // nothing there
	was := func(want bool) {
		t.Helper()
		if removed, err := WasRemoved(dir); err != nil || removed != want {
			t.Error(removed, err)
		}
	}
	if _, err := WasRemoved(dir); err == nil {
		t.Error("a folder that is not there")
	}
	f, err := Open(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	former := f.Identity().Member
	if err := os.WriteFile(f.LogPath(), []byte("log"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(f.ReplicaPath(1, 1), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, partition.JournalFolder), 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := ClearRemoved(dir); err == nil {
		t.Error("cleared under a process that runs")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	clear(false) // it is a member
	was(false)
	if !f.HasReplica(1, 1) {
		t.Fatal("the data of a member is gone")
	}
	if err := f.Update(func(id *Identity) { id.Removed = true }); err != nil {
		t.Fatal(err)
	}
	was(true)
	if err := os.Remove(f.LogPath()); err != nil { // as a clearing leaves it that was interrupted
		t.Fatal(err)
	}
	clear(true)
	clear(false)
	f, err = Open(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, partition.JournalFolder)); err == nil || f.Identity().Member == former || f.HasReplica(1, 1) {
		t.Error("something is left")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
