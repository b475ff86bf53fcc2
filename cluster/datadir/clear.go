package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/peeklock/peeklock/partition/disk"
)

// WasRemoved reports whether the folder at path belongs to a member that knows that it was removed
// from its cluster for good. A process may run on the folder.
func WasRemoved(path string) (bool, error) {
	data, err := disk.OS{}.ReadFile(filepath.Join(path, identityFile))
	if err != nil {
		return false, fmt.Errorf("read identity: %w", err)
	}
	var id Identity
	if err := json.Unmarshal(data, &id); err != nil {
		return false, fmt.Errorf("read identity: %w", err)
	}
	return id.Removed, nil
}

// ClearRemoved empties the folder at path of a member that knows that it was removed from its
// cluster for good, so that a new member can use it; cleared reports that it has. Any other folder
// is left unchanged: [Open] says what is wrong with it. No process may run on the folder. After an
// interruption ClearRemoved can be called again.
func ClearRemoved(path string) (cleared bool, err error) {
	files := disk.OS{}
	if _, err := files.Stat(filepath.Join(path, identityFile)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := files.Lock(filepath.Join(path, lockName))
	if err != nil {
		return false, fmt.Errorf("clear %s: %w", path, err)
	}
	d := &Dir{files: files, path: path, lock: lock}
	defer func() { err = errors.Join(err, d.Close()) }()
	if !errors.Is(d.load(), ErrRemoved) {
		return false, nil
	}
	// The record of the removal goes last: until then the folder can be cleared again.
	for _, name := range []string{groupsName, journalName, logName, identityFile + ".new"} {
		if err := files.RemoveAll(filepath.Join(path, name)); err != nil {
			return false, fmt.Errorf("clear %s: %w", path, err)
		}
	}
	if err := files.SyncFolder(path); err != nil {
		return false, fmt.Errorf("clear %s: %w", path, err)
	}
	if err := files.Remove(filepath.Join(path, identityFile)); err != nil {
		return false, fmt.Errorf("clear %s: %w", path, err)
	}
	return true, files.SyncFolder(path)
}
