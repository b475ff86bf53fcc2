package raftlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/journal"
)

// ownersMax is more than the partitions that a cluster can have, the catalog included.
const ownersMax = 1 << 13

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

// ErrOtherKind means that the entries are in a journal, and the log is opened as Bolt.
var ErrOtherKind = errors.New("the log of this folder is of another kind")

// journalStore keeps entries in a journal and values in the store of the log.
type journalStore struct {
	Store // of the values

	journal *journal.Journal
	scratch []journal.Entry // of StoreLogs, which has one caller at a time
}

// openKind opens the store of a kind over the store of the values, which may hold entries of its own.
func openKind(cfg *Config, values Store, ranges map[fsm.PartitionID]IndexRange) (Store, map[fsm.PartitionID]IndexRange, error) {
	found, err := hasJournal(values)
	switch {
	case err != nil:
	case cfg.Kind != Journal && found:
		err = fmt.Errorf("%w: its entries are in a journal, open it as %q", ErrOtherKind, Journal)
	case cfg.Kind != Journal:
		return values, ranges, nil
	case found:
		err = deleteEntries(values, ranges)
	case len(ranges) > 0:
		err = takeOver(cfg, values, ranges)
	default:
		err = removeAbandoned(cfg, values)
	}
	if err != nil {
		return nil, nil, err
	}
	if s, ok := values.(*valueStore); ok {
		if err := s.startCopy(cfg.Logger); err != nil {
			return nil, nil, err
		}
	}
	j, err := openJournal(cfg, catalog{values, ""}, false)
	if err != nil {
		return nil, nil, err
	}
	return &journalStore{Store: values, journal: j}, rangesOf(j), nil
}

// openJournal opens the journal of a catalog.
func openJournal(cfg *Config, in catalog, cutUndecided bool) (*journal.Journal, error) {
	return journal.Open(journal.Config{
		FS: cfg.FS, Dir: cfg.journalFolder(), Catalog: in, SegmentBytes: cfg.SegmentBytes, CutUndecided: cutUndecided, Logger: cfg.Logger,
	})
}

func (cfg *Config) journalFolder() string {
	return filepath.Join(filepath.Dir(cfg.Path), JournalFolder)
}

// rangesOf returns the ranges of the groups that have entries in a journal.
func rangesOf(j *journal.Journal) map[fsm.PartitionID]IndexRange {
	ranges := make(map[fsm.PartitionID]IndexRange)
	for id, r := range j.Ranges() {
		ranges[fsm.PartitionID(id)] = IndexRange{r.First, r.Last}
	}
	return ranges
}

// hasJournal reports whether the catalog of a journal is among the values.
func hasJournal(values Store) (bool, error) {
	return catalog{values, ""}.hasJournal()
}

// damagedOwners returns the groups that have a replica, and of which entries cannot be read.
func damagedOwners(values Store, j *journal.Journal) (damaged []fsm.PartitionID, err error) {
	for id := range fsm.PartitionID(ownersMax) {
		if j.Damage(uint32(id)) == nil {
			continue
		}
		owner, err := values.Get(fmt.Appendf(nil, "%d/%s", id, keyReplica))
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		if len(owner) > 0 {
			damaged = append(damaged, id)
		}
	}
	return damaged, nil
}

// catalog keeps the catalog of a journal among the values.
type catalog struct {
	values Store
	prefix string // of its keys
}

func (c catalog) hasJournal() (bool, error) {
	id, err := c.Get(journal.KeyID)
	return len(id) > 0, err
}

func (c catalog) Get(key string) ([]byte, error) {
	v, err := c.values.Get([]byte(c.prefix + key))
	if isNotFound(err) {
		return nil, nil
	}
	return v, err
}

func (c catalog) Set(key string, value []byte) error {
	return c.values.Set([]byte(c.prefix+key), value)
}

// GetLog implements Store.
func (s *journalStore) GetLog(index uint64, out *raft.Log) error {
	var e journal.Entry
	err := s.journal.Read(uint32(index>>logIndexBits), index&IndexMax, &e)
	if errors.Is(err, journal.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	if err != nil {
		return err
	}
	*out = raft.Log{Index: index, Term: e.Term, Type: raft.LogType(e.Type), Data: e.Data, Extensions: e.Extensions}
	if e.AppendedAt != 0 {
		out.AppendedAt = time.Unix(0, e.AppendedAt)
	}
	return nil
}

// StoreLogs implements Store.
func (s *journalStore) StoreLogs(entries []*raft.Log) error {
	list := s.scratch[:0]
	for _, e := range entries {
		at := int64(0)
		if !e.AppendedAt.IsZero() {
			at = e.AppendedAt.UnixNano()
		}
		list = append(list, journal.Entry{
			Group: uint32(e.Index >> logIndexBits), Type: uint8(e.Type), Index: e.Index & IndexMax, Term: e.Term,
			AppendedAt: at, Data: e.Data, Extensions: e.Extensions,
		})
	}
	err := s.journal.Append(list)
	clear(list)
	s.scratch = list
	return err
}

// DeleteRange implements Store.
func (s *journalStore) DeleteRange(low, high uint64) error {
	return s.journal.DeleteRange(uint32(low>>logIndexBits), low&IndexMax, high&IndexMax)
}

// Close implements Store.
func (s *journalStore) Close() error { return errors.Join(s.journal.Close(), s.Store.Close()) }
