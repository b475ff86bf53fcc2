package raftlog

import (
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/peeklock/peeklock/partition/disk"
)

// Config configures a log.
type Config struct {
	Path string
	// FS holds the folder of the log and all that the groups store beside it; nil means the operating system's.
	FS disk.FS
	// OpenStore opens the store of entries; nil means a bbolt file, for which FS is not used.
	OpenStore OpenStore
	// Kind is where the entries are; empty means Journal. A log keeps the kind that it was created with.
	Kind Kind
	// SegmentBytes is the size of a segment of a journal; 0 means journal.SegmentBytesDefault.
	SegmentBytes int
	// Logger gets later events, as of a full disk.
	Logger *slog.Logger

	cutUndecided bool // see CutUndecided
}

func (cfg *Config) journalFolder() string {
	return filepath.Join(filepath.Dir(cfg.Path), JournalFolder)
}

// JournalFolder is the name of the folder of the journal, beside the file of the log.
const JournalFolder = "journal"

// Kind is where a log keeps its entries.
type Kind string

// The kinds of logs.
const (
	// Bolt keeps the entries in the raft-boltdb file.
	Bolt Kind = "bolt"
	// Journal keeps the entries in a journal beside the raft-boltdb file, which keeps terms, votes, owners and the
	// catalog of the journal's segments.
	Journal Kind = "journal"
)

// ErrOtherKind means that the entries of the log are elsewhere than its configuration says.
var ErrOtherKind = errors.New("the log is of another kind")
