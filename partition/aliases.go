package partition

import (
	"io"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/histogram"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/savedlog"
	"github.com/peeklock/peeklock/partition/skip"
	"github.com/peeklock/peeklock/partition/snapshots"
)

// Types of the subpackages that callers of this package use, so that they need not import them.
type (
	// Log is the shared log of a member, see [raftlog.Log].
	Log = raftlog.Log
	// LogConfig configures a log, see [raftlog.Config].
	LogConfig = raftlog.Config
	// OpenLogStore opens the store of a log, see [raftlog.OpenStore].
	OpenLogStore = raftlog.OpenStore
	// LogKind is where a log keeps its entries, see [raftlog.Kind].
	LogKind = raftlog.Kind
	// FS is the file system of a member's data, see [disk.FS].
	FS = disk.FS
	// NoSyncFS is a file system without durability, see [disk.NoSync].
	NoSyncFS = disk.NoSync
	// LogStats are statistics of the log, see [raftlog.Stats].
	LogStats = raftlog.Stats
	// LogLatency says how long writes of a log take now, see [raftlog.Latency].
	LogLatency = raftlog.Latency
	// DiskSpace is the disk space of a member, see [disk.Space].
	DiskSpace = disk.Space
	// Checkpoint is the digest of a replica at an index, see [digest.Checkpoint].
	Checkpoint = digest.Checkpoint
	// Difference is the result of CompareCheckpoints, see [digest.Difference].
	Difference = digest.Difference
	// BackupInfo describes a backup, see [snapshots.BackupInfo].
	BackupInfo = snapshots.BackupInfo
	// SavedEntry is an entry of a saved log, see [savedlog.Entry].
	SavedEntry = savedlog.Entry
	// SkippedEntry is an entry that an operator has marked, see [skip.Entry].
	SkippedEntry = skip.Entry
	// Histogram counts durations, see [histogram.Histogram].
	Histogram = histogram.Histogram
	// Durations is a snapshot of a histogram, see [histogram.Durations].
	Durations = histogram.Durations
)

// The kinds of logs, see [raftlog.Bolt] and [raftlog.Journal].
const (
	BoltLog    = raftlog.Bolt
	JournalLog = raftlog.Journal
)

// ErrLogDamaged means that entries of the log of a replica cannot be read, see [raftlog.ErrDamaged].
var ErrLogDamaged = raftlog.ErrDamaged

// ErrSkip means that an entry cannot be marked as skipped, see [skip.ErrEntry].
var ErrSkip = skip.ErrEntry

// JournalFolder is the name of the folder of the journal, see [raftlog.JournalFolder].
const JournalFolder = raftlog.JournalFolder

// CompareCheckpoints returns the first index at which replicas differ, see [digest.Compare].
func CompareCheckpoints(of map[string][]Checkpoint, voters int) Difference {
	return digest.Compare(of, voters)
}

// ReadBackupInfo reads the description at the beginning of a backup, see [snapshots.ReadBackupInfo].
func ReadBackupInfo(r io.Reader) (BackupInfo, error) { return snapshots.ReadBackupInfo(r) }

// CheckBackup reads a backup to its end and verifies its checksum, see [snapshots.CheckBackup].
func CheckBackup(r io.Reader) (BackupInfo, error) { return snapshots.CheckBackup(r) }

// Bound returns the upper end of bucket i of a histogram.
func Bound(i int) time.Duration { return histogram.Bound(i) }

// FileSystemSpace returns the space of the file system that holds a folder, see [disk.FileSystemSpace].
func FileSystemSpace(dir string) (free, total uint64, err error) { return disk.FileSystemSpace(dir) }

// OpenLog opens the log of a member, see [raftlog.Open].
func OpenLog(cfg LogConfig) (*Log, error) { return raftlog.Open(cfg) }

// CutUndecided cuts an undecided batch of the journal of a closed log, see [raftlog.CutUndecided].
func CutUndecided(cfg LogConfig) (cut bool, err error) { return raftlog.CutUndecided(cfg) }

// StoredEntry returns an entry of the log of a group that is not open, and its checksum, see [skip.Stored].
func StoredEntry(log *Log, id fsm.PartitionID, index uint64) (e SavedEntry, sum uint32, err error) {
	return skip.Stored(log, id, index)
}

// MarkSkipped marks an entry of a replica that is not open as skipped, see [skip.Mark].
func MarkSkipped(log *Log, id fsm.PartitionID, dir string, index uint64, checksum uint32) error {
	return skip.Mark(log, id, dir, index, checksum)
}

// SkippedEntries returns the entries of a replica that are marked, see [skip.Entries].
func SkippedEntries(files FS, dir string) ([]SkippedEntry, error) { return skip.Entries(files, dir) }
