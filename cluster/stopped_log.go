package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/partition"
)

// StoppedLog is the log of a member that is not running.
type StoppedLog struct {
	Dir string // data folder of the member
	// FS and OpenLogStore are as in the configuration of a member.
	FS           partition.FS
	OpenLogStore partition.OpenLogStore
	Logger       *slog.Logger

	segmentBytes int // of the journal; 0 means its default
}

// Convert moves the entries of the log. It reports whether there was anything to do. After a crash, or an error, the log
// can be converted again, in either direction.
func (l *StoppedLog) Convert(to partition.LogKind) (converted bool, err error) {
	dir, err := datadir.OpenExisting(l.FS, l.Dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if cmp.Or(dir.Identity().Log, datadir.BoltLog) == datadir.Log(to) {
		return false, nil
	}
	if to == partition.JournalLog {
		log, err := openLog(dir, l.config(dir, to))
		if err != nil {
			return false, err
		}
		return true, log.Close()
	}
	if err := partition.LeaveJournal(l.config(dir, to)); err != nil {
		return false, err
	}
	return true, dir.Update(func(id *datadir.Identity) { id.SetLog(datadir.BoltLog) })
}

// Cut cuts a batch at the end of the journal for which the member does not start, because the batch cannot be read and may
// have been confirmed. What only this batch confirmed is lost. It reports whether there was one.
func (l *StoppedLog) Cut() (cut bool, err error) {
	dir, err := datadir.OpenExisting(l.FS, l.Dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return partition.CutUndecided(l.config(dir, partition.JournalLog))
}

func (l *StoppedLog) config(dir *datadir.Dir, kind partition.LogKind) partition.LogConfig {
	return partition.LogConfig{Path: dir.LogPath(), Kind: kind, FS: l.FS, OpenStore: l.OpenLogStore, SegmentBytes: l.segmentBytes, Logger: l.Logger}
}

// openLog opens the log of a data folder, of the kind that [datadir.Dir.UseLog] chooses if none is asked for. A folder without a journal
// gets one if that is the kind.
func openLog(dir *datadir.Dir, config partition.LogConfig) (*partition.Log, error) {
	kind, err := dir.UseLog(datadir.Log(config.Kind))
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	config.Kind = partition.LogKind(kind)
	return partition.OpenLog(config)
}
