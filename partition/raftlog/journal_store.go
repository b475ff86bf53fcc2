package raftlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/journal"
)

// journalStore keeps entries in a journal and values in the store of the log.
type journalStore struct {
	Store // of the values

	journal *journal.Journal
	scratch []journal.Entry // of StoreLogs, which has one caller at a time
}

// openKind opens the store of a kind over the store of the values, which holds entries of its own if the kind is Bolt.
func openKind(cfg *Config, values Store, ranges map[fsm.PartitionID]IndexRange) (Store, map[fsm.PartitionID]IndexRange, error) {
	in := catalog{values}
	id, err := in.Get(journal.KeyID)
	switch {
	case err != nil:
		return nil, nil, err
	case cfg.Kind == Bolt && len(id) > 0:
		return nil, nil, fmt.Errorf("%w: its entries are in a journal, open it as %q", ErrOtherKind, Journal)
	case cfg.Kind == Bolt:
		return values, ranges, nil
	case len(ranges) > 0:
		return nil, nil, fmt.Errorf("%w: its entries are not in a journal, open it as %q", ErrOtherKind, Bolt)
	}
	if s, ok := values.(*valueStore); ok {
		if err := s.startCopy(cfg); err != nil {
			return nil, nil, err
		}
	}
	j, err := journal.Open(journal.Config{
		FS: cfg.FS, Dir: cfg.journalFolder(), Catalog: in, SegmentBytes: cfg.SegmentBytes, CutUndecided: cfg.cutUndecided, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	ranges = make(map[fsm.PartitionID]IndexRange)
	for id, r := range j.Ranges() {
		ranges[fsm.PartitionID(id)] = IndexRange{r.First, r.Last}
	}
	return &journalStore{Store: values, journal: j}, ranges, nil
}

// catalog keeps the catalog of a journal among the values.
type catalog struct{ values Store }

func (c catalog) Get(key string) ([]byte, error) {
	v, err := c.values.Get([]byte(key))
	if isNotFound(err) {
		return nil, nil
	}
	return v, err
}

func (c catalog) Set(key string, value []byte) error { return c.values.Set([]byte(key), value) }

// GetLog implements Store. The extensions of an entry are the checksum of its data, see package entrysum.
func (s *journalStore) GetLog(index uint64, out *raft.Log) error {
	var e journal.Entry
	err := s.journal.Read(uint32(index>>logIndexBits), index&IndexMax, &e)
	if errors.Is(err, journal.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	if err != nil {
		return err
	}
	*out = raft.Log{Index: index, Term: e.Term, Type: raft.LogType(e.Type), Data: e.Data, Extensions: e.Sum}
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
			AppendedAt: at, Data: e.Data, Sum: e.Extensions,
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
