package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
)

// A replica consists of its folder and a range of the shared log, and each names the replica:
//
//	folder   file "replica": version byte, then the name of the replica
//	log      value "Replica" of the group: the name of the replica whose entries they are
//
// So entries are never taken for those of another replica, and a folder whose log was lost is not opened as
// if the replica had never voted. A replica that is being removed has the file "dropped".
const (
	replicaFile         = "replica"
	replicaVersion byte = 1
	droppedFile         = "dropped"
)

// ErrDropped means that the process ended while the replica was being removed, and that the removal is now
// complete.
var ErrDropped = errors.New("replica was dropped")

// ErrForeignLog means that the log holds entries of another replica of the same group, which must be dropped
// first.
var ErrForeignLog = errors.New("log holds another replica of the group")

// claim verifies that the range of the log and the folder belong to this replica, and claims both if they are
// new. It runs before either is opened.
func claim(cfg *Config, log *raftlog.Group) error {
	files, dir, replica := cfg.Log.FS(), cfg.Dir, cfg.Replica
	if err := files.MkdirAll(dir, disk.FolderMode); err != nil {
		return fmt.Errorf("claim folder: %w", err)
	}
	path := filepath.Join(dir, replicaFile)
	named, err := files.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("claim folder: %w", err)
	}
	claimed := err == nil
	switch {
	case claimed && len(named) == 0:
		return fmt.Errorf("file %s is empty: %w", path, disk.ErrDamaged)
	case claimed && named[0] != replicaVersion:
		return fmt.Errorf("file %s has version %d, which is not known to this binary", path, named[0])
	case claimed && string(named[1:]) != replica:
		return fmt.Errorf("folder %s belongs to replica %s and not to %s: %w", dir, named[1:], replica, disk.ErrDamaged)
	}
	owner, err := log.Owner()
	switch {
	case err != nil:
		return err
	case owner == "" && claimed:
		return fmt.Errorf("log of replica %s was lost: add a new replica on the member instead: %w", replica, disk.ErrDamaged)
	case owner != "" && owner != replica:
		return fmt.Errorf("log of group %d holds %s: %w", cfg.ID, owner, ErrForeignLog)
	case owner == "":
		if err := log.SetOwner(replica); err != nil {
			return fmt.Errorf("claim log of group %d: %w", cfg.ID, err)
		}
	}
	if claimed {
		return nil
	}
	return disk.WriteSynced(files, path, append([]byte{replicaVersion}, replica...), disk.FileMode)
}

// ReplicaOf returns the name of the replica to which a folder belongs, "" if the folder records none. With nil the files
// are those of the operating system.
func ReplicaOf(files disk.FS, dir string) string {
	if files == nil {
		files = disk.OS{}
	}
	named, err := files.ReadFile(filepath.Join(dir, replicaFile))
	if err != nil || len(named) == 0 || named[0] != replicaVersion {
		return "" // opening the replica says what is wrong with it
	}
	return string(named[1:])
}

// Drop removes the data of a replica that is not open from this member: its entries, term and vote in the
// log, unless another replica owns them by now, then its folder. It can be repeated at any time, also when
// nothing is left. A damaged replica is replaced by way of Drop.
func Drop(log *raftlog.Log, id fsm.PartitionID, replica, dir string) error {
	if err := markDropped(log.FS(), dir); err != nil {
		return fmt.Errorf("drop replica %s: %w", replica, err)
	}
	g, err := log.Group(id)
	if err != nil {
		return fmt.Errorf("drop replica %s: %w", replica, err)
	}
	owner, err := g.Owner()
	if err == nil && (owner == "" || owner == replica) {
		err = log.Forget(id)
	}
	if err != nil {
		return fmt.Errorf("drop replica %s: %w", replica, err)
	}
	if err := removeDropped(log.FS(), dir); err != nil {
		return fmt.Errorf("drop replica %s: %w", replica, err)
	}
	return nil
}

// markDropped marks a folder, if it exists, for removal.
func markDropped(files disk.FS, dir string) error {
	if _, err := files.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return disk.WriteSynced(files, filepath.Join(dir, droppedFile), nil, disk.FileMode)
}

// isDropped reports whether a folder is marked for removal.
func isDropped(files disk.FS, dir string) bool {
	_, err := files.Stat(filepath.Join(dir, droppedFile))
	return err == nil
}

// removeDropped removes a folder, its mark last.
func removeDropped(files disk.FS, dir string) error {
	names, err := files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	for _, n := range names {
		if n.Name() == droppedFile {
			continue
		}
		if err := files.RemoveAll(filepath.Join(dir, n.Name())); err != nil {
			return fmt.Errorf("remove folder: %w", err)
		}
	}
	if err := files.SyncFolder(dir); err != nil {
		return err
	}
	if err := files.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return files.SyncFolder(filepath.Dir(dir))
}
