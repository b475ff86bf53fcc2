package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/peeklock/peeklock/partition/disk"
)

// ReadIdentity returns the identity of the member to which the folder at path belongs. A process may run on the folder.
func ReadIdentity(path string) (Identity, error) {
	data, err := disk.OS{}.ReadFile(filepath.Join(path, identityFile))
	if err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	var id Identity
	if err := json.Unmarshal(data, &id); err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	return id, nil
}

// SetAsideRemoved moves the data of a member that knows that it was removed from its cluster for good to the folder
// "removed" in the folder at path, so that a new member can use the rest; moved reports that it has. It deletes what the
// folder "removed" held before. Any other folder is left unchanged: [Open] says what is wrong with it. No process may
// run on the folder. After an interruption SetAsideRemoved can be called again.
func SetAsideRemoved(path string) (moved bool, err error) {
	files := disk.OS{}
	identity := filepath.Join(path, identityFile)
	if _, err := files.Stat(identity); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := files.Lock(filepath.Join(path, lockName))
	if err != nil {
		return false, fmt.Errorf("set the removed member in %s aside: %w", path, err)
	}
	d := &Dir{files: files, path: path, lock: lock}
	defer func() { err = errors.Join(err, d.Close()) }()
	if !errors.Is(d.load(), ErrRemoved) {
		return false, nil
	}
	if err := d.setAside(); err != nil {
		return false, fmt.Errorf("set the removed member in %s aside: %w", path, err)
	}
	return true, nil
}

// setAside completes the new folder before it replaces the old one. The record of the removal in the data folder goes
// last: until then the member can be set aside again. A copy of it in the folder "removed" shows that only this is left.
func (d *Dir) setAside() error {
	identity, aside := filepath.Join(d.path, identityFile), filepath.Join(d.path, asideName)
	fresh := aside + ".new"
	record, err := d.files.ReadFile(identity)
	if err != nil {
		return err
	}
	if kept, err := d.files.ReadFile(filepath.Join(aside, identityFile)); err != nil || !bytes.Equal(kept, record) {
		if err := d.files.MkdirAll(fresh, 0o750); err != nil {
			return err
		}
		for _, name := range []string{groupsName, journalName, logCopyName, logName} {
			if _, err := d.files.Stat(filepath.Join(fresh, name)); err == nil {
				continue // moved before an interruption; a start in between made an empty folder again
			}
			if err := d.files.Rename(filepath.Join(d.path, name), filepath.Join(fresh, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := disk.WriteFile(d.files, filepath.Join(fresh, identityFile), record, identityMode); err != nil {
			return err
		}
		if err := errors.Join(d.files.SyncFolder(fresh), d.files.RemoveAll(aside)); err != nil {
			return err
		}
		if err := d.files.Rename(fresh, aside); err != nil {
			return err
		}
		if err := d.files.SyncFolder(d.path); err != nil {
			return err
		}
	}
	if err := errors.Join(d.files.RemoveAll(identity+".new"), d.files.Remove(identity)); err != nil {
		return err
	}
	return d.files.SyncFolder(d.path)
}
