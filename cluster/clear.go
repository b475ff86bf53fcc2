package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
	f := &folder{dir: dir, lock: lock}
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
