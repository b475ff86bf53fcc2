package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WasRemoved says whether the data folder is that of a member that knows that it was removed from its
// cluster for good. A process may run on the folder.
func WasRemoved(dir string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, "member.json")) //nolint:gosec // the caller names the folder
	if err != nil {
		return false, fmt.Errorf("read identity: %w", err)
	}
	var id identity
	if err := json.Unmarshal(data, &id); err != nil {
		return false, fmt.Errorf("read identity: %w", err)
	}
	return id.Removed, nil
}

// ClearRemoved empties the data folder of a member that knows that it was removed from its
// cluster for good, so that a new member can begin there; cleared says that it has. Any
// other folder is left as it is: it is for [Open] to say what is wrong with it. No process
// may run on the folder. When it is interrupted it can be called again.
func ClearRemoved(dir string) (cleared bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, "member.json")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return false, fmt.Errorf("clear %s: %w", dir, err)
	}
	f := &dataDir{dir: dir, lock: lock}
	defer func() { err = errors.Join(err, f.close()) }()
	if !errors.Is(f.load(), ErrRemoved) {
		return false, nil
	}
	// The word that it was removed goes last: until then this can be done again.
	for _, name := range []string{"groups", "raft.db", "member.json.new"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return false, fmt.Errorf("clear %s: %w", dir, err)
		}
	}
	if err := syncDir(dir); err != nil {
		return false, fmt.Errorf("clear %s: %w", dir, err)
	}
	if err := os.Remove(filepath.Join(dir, "member.json")); err != nil {
		return false, fmt.Errorf("clear %s: %w", dir, err)
	}
	return true, syncDir(dir)
}
