package datadir

import (
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
		"version":  `{"version":2,"member":"` + string(id) + `"}`,
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
