package raftlog

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/planted"
	"github.com/peeklock/peeklock/partition/journal"
)

// conversionPrefix begins the keys of the catalog of a journal that is being written, or was given up: its folder may be removed.
const conversionPrefix = "conversion/"

// convertDeleteEntriesMax is how many entries a conversion deletes in one transaction. No group waits for it.
const convertDeleteEntriesMax = 4096

// takeOver moves the entries from the values into a new journal. The id of the journal in the catalog, written when the journal is
// complete, is the switch: a crash before it leaves the entries among the values, and the journal is written
// again; a crash after it leaves the journal, and the entries among the values are deleted by the next open.
func takeOver(cfg *Config, values Store, ranges map[fsm.PartitionID]IndexRange) error {
	if err := removeAbandoned(cfg, values); err != nil {
		return err
	}
	building := catalog{values, conversionPrefix}
	j, err := openJournal(cfg, building, false)
	if err != nil {
		return fmt.Errorf("create a journal: %w", err)
	}
	if planted.Active(planted.SwitchBeforeCopy) {
		err = journal.CopyCatalog(building, catalog{values, ""})
	}
	s := &journalStore{Store: values, journal: j}
	copied, copyErr := copyEntries(values, s, ranges)
	if err := errors.Join(err, copyErr, j.Close()); err != nil {
		return fmt.Errorf("copy the entries into the journal: %w", err)
	}
	if err := journal.CopyCatalog(building, catalog{values, ""}); err != nil {
		return err
	}
	cfg.Logger.Info("log was moved into a journal", "path", cfg.journalFolder(), "entries", copied)
	return errors.Join(journal.ClearCatalog(building), deleteEntries(values, ranges))
}

// ReturnToBolt moves the entries of a log that is Journal back into its raft-boltdb file, and removes the journal. The log must be
// closed. A crash leaves a log of either kind with all entries, and ReturnToBolt can be repeated. It returns an error that wraps
// disk.ErrDamaged if an entry cannot be read; the log is unchanged then.
func ReturnToBolt(cfg Config) (err error) {
	values, ranges, err := openValues(&cfg)
	if err != nil {
		return fmt.Errorf("open log %s: %w", cfg.Path, err)
	}
	defer func() { err = errors.Join(err, values.Close()) }()
	found, err := hasJournal(values)
	if err != nil {
		return err
	}
	if found {
		if err := leaveJournal(&cfg, values, ranges); err != nil {
			return fmt.Errorf("move the entries of log %s out of the journal: %w", cfg.Path, err)
		}
	}
	return removeAbandoned(&cfg, values)
}

// leaveJournal copies the entries of the journal to the values. Removing its id from the catalog is the switch.
func leaveJournal(cfg *Config, values Store, ranges map[fsm.PartitionID]IndexRange) error {
	if err := deleteEntries(values, ranges); err != nil { // of a conversion that was interrupted
		return err
	}
	active := catalog{values, ""}
	j, err := openJournal(cfg, active, false)
	if err != nil {
		return err
	}
	copied := 0
	damaged, err := damagedOwners(values, j)
	if len(damaged) > 0 {
		err = fmt.Errorf("entries of groups %v cannot be read: start the member, which gets them from the others: %w", damaged, ErrDamaged)
	}
	if err == nil {
		copied, err = copyEntries(&journalStore{Store: values, journal: j}, values, rangesOf(j))
	}
	if err := errors.Join(err, j.Close()); err != nil {
		return err
	}
	if err := journal.CopyCatalog(active, catalog{values, conversionPrefix}); err != nil {
		return err
	}
	if err := journal.ClearCatalog(active); err != nil {
		return err
	}
	cfg.Logger.Info("log was moved out of its journal", "path", cfg.Path, "entries", copied)
	return nil
}

// CutUndecided cuts a batch at the end of the journal of a closed log that cannot be read and may have been confirmed
// (journal.ErrUndecided). What only this batch confirmed is lost. It reports whether there was one.
func CutUndecided(cfg Config) (cut bool, err error) {
	values, _, err := openValues(&cfg)
	if err != nil {
		return false, fmt.Errorf("open log %s: %w", cfg.Path, err)
	}
	defer func() { err = errors.Join(err, values.Close()) }()
	if found, err := hasJournal(values); err != nil || !found {
		return false, err
	}
	j, err := openJournal(&cfg, catalog{values, ""}, true)
	if err != nil {
		return false, err
	}
	return j.HasCut(), j.Close()
}

// removeAbandoned removes the folder of a journal that a conversion was writing when it ended, or has given up.
func removeAbandoned(cfg *Config, values Store) error {
	abandoned := catalog{values, conversionPrefix}
	found, err := abandoned.hasJournal()
	if err != nil || !found {
		return err
	}
	if err := cfg.FS.RemoveAll(cfg.journalFolder()); err != nil {
		return fmt.Errorf("remove an abandoned journal: %w", err)
	}
	if err := cfg.FS.SyncFolder(filepath.Dir(cfg.Path)); err != nil {
		return err
	}
	return journal.ClearCatalog(abandoned)
}

// copyEntries copies the entries of all groups and returns their number. They are durable when it returns.
func copyEntries(from, to Store, ranges map[fsm.PartitionID]IndexRange) (copied int, err error) {
	var piece []*raft.Log
	size := 0
	flush := func() error {
		err := to.StoreLogs(piece)
		copied += len(piece)
		piece, size = piece[:0], 0
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(ranges)) {
		for index := ranges[id].First; index <= ranges[id].Last; index++ {
			e := new(raft.Log)
			if err := from.GetLog(uint64(id)<<logIndexBits|index, e); err != nil {
				return copied, fmt.Errorf("read entry %d of group %d: %w", index, id, err)
			}
			piece = append(piece, e)
			if size += len(e.Data) + EntryOverhead; size >= logCommitBytesMax {
				if err := flush(); err != nil {
					return copied, err
				}
			}
		}
	}
	if len(piece) == 0 {
		return copied, nil
	}
	return copied, flush()
}

// deleteEntries deletes the entries of all groups.
func deleteEntries(from Store, ranges map[fsm.PartitionID]IndexRange) error {
	for _, id := range slices.Sorted(maps.Keys(ranges)) {
		for low := ranges[id].First; low <= ranges[id].Last; low += convertDeleteEntriesMax {
			high := min(low+convertDeleteEntriesMax-1, ranges[id].Last)
			if err := from.DeleteRange(uint64(id)<<logIndexBits|low, uint64(id)<<logIndexBits|high); err != nil {
				return fmt.Errorf("delete entries of group %d: %w", id, err)
			}
		}
	}
	return nil
}
