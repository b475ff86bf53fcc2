package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/partition"
)

// openLog opens the log of a data folder, which keeps the kind that it was created with. An empty kind means partition.JournalLog.
func openLog(dir *datadir.Dir, config partition.LogConfig) (*partition.Log, error) {
	config.Kind = cmp.Or(config.Kind, partition.JournalLog)
	if err := dir.UseLog(datadir.Log(config.Kind)); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return partition.OpenLog(config)
}

// CutLog cuts a batch at the end of the journal of a member that does not start, because the batch cannot be read and may
// have been confirmed. What only this batch confirmed is lost. No process may run on the folder. It reports whether there was one.
func CutLog(path string, logger *slog.Logger) (cut bool, err error) {
	dir, err := datadir.OpenExisting(nil, path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if dir.Identity().Log != datadir.JournalLog {
		return false, nil
	}
	return partition.CutUndecided(partition.LogConfig{Path: dir.LogPath(), Kind: partition.JournalLog, Logger: logger})
}
