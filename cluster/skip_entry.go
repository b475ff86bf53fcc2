package cluster

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// StoredEntry returns an entry of the log of a partition in the data folder of a member that is not running, and the checksum
// of its data.
func StoredEntry(path string, id fsm.PartitionID, index uint64, logger *slog.Logger) (e partition.SavedEntry, sum uint32, err error) {
	err = withStoppedLog(path, logger, func(_ *datadir.Dir, log *partition.Log) error {
		e, sum, err = partition.StoredEntry(log, id, index)
		return err
	})
	return e, sum, err
}

// SkipEntry marks an entry of a partition as skipped in the data folder of a member that is not running. The error wraps
// partition.ErrSkip if it cannot be skipped.
func SkipEntry(path string, id fsm.PartitionID, index uint64, checksum uint32, logger *slog.Logger) error {
	return withStoppedLog(path, logger, func(dir *datadir.Dir, log *partition.Log) error {
		number, found, err := newestReplica(dir, id)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%w: %s has no replica of partition %d", partition.ErrSkip, path, id)
		}
		return partition.MarkSkipped(log, id, dir.ReplicaPath(id, number), index, checksum)
	})
}

// Skipped is an entry of a partition that an operator has marked as skipped.
type Skipped struct {
	Partition fsm.PartitionID
	partition.SkippedEntry
}

// SkippedEntries lists the marked entries in the data folder of a member that is about to start. It does not lock the folder.
func SkippedEntries(path string) (all []Skipped, err error) {
	replicas, err := datadir.ReplicaFolders(path)
	for folder, r := range replicas {
		marked, err := partition.SkippedEntries(nil, folder)
		if err != nil {
			return nil, err
		}
		for _, s := range marked {
			all = append(all, Skipped{r.Partition, s})
		}
	}
	return all, err
}

// withStoppedLog opens the data folder and the log of a member that is not running.
func withStoppedLog(path string, logger *slog.Logger, do func(*datadir.Dir, *partition.Log) error) (err error) {
	dir, err := datadir.OpenExisting(nil, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	log, err := partition.OpenLog(partition.LogConfig{Path: dir.LogPath(), Kind: partition.LogKind(dir.Identity().Log), Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return do(dir, log)
}

// newestReplica returns the number of the newest replica of a partition that the folder has.
func newestReplica(dir *datadir.Dir, id fsm.PartitionID) (number uint32, found bool, err error) {
	replicas, err := dir.AllReplicas()
	for _, r := range replicas {
		if r.Partition == id && (!found || r.Number > number) {
			number, found = r.Number, true
		}
	}
	return number, found, err
}
