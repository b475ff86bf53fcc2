package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/partition"
)

// LogConversion names a data folder and where its log is to keep its entries.
type LogConversion struct {
	Dir string
	To  partition.LogKind
	// FS and OpenLogStore are as in the configuration of a member.
	FS           partition.FS
	OpenLogStore partition.OpenLogStore
	Logger       *slog.Logger
}

// ConvertLog moves the log of a member that is not running. It reports whether there was anything to do. After a
// crash, or an error, the folder can be converted again, in either direction.
func ConvertLog(c LogConversion) (converted bool, err error) {
	dir, err := datadir.OpenExisting(c.FS, c.Dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if cmp.Or(dir.Identity().Log, datadir.BoltLog) == datadir.Log(c.To) {
		return false, nil
	}
	config := partition.LogConfig{Path: dir.LogPath(), Kind: c.To, FS: c.FS, OpenStore: c.OpenLogStore, Logger: c.Logger}
	if c.To == partition.JournalLog {
		log, err := openLog(dir, config)
		if err != nil {
			return false, err
		}
		return true, log.Close()
	}
	if err := partition.LeaveJournal(config); err != nil {
		return false, err
	}
	return true, dir.Update(func(id *datadir.Identity) { id.SetLog(datadir.BoltLog) })
}

// openLog opens the log of a data folder. A folder without a journal gets one if that is the kind asked for.
func openLog(dir *datadir.Dir, config partition.LogConfig) (*partition.Log, error) {
	if err := dir.UseLog(datadir.Log(config.Kind)); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return partition.OpenLog(config)
}
