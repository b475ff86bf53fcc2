package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/journal"
)

// ownersMax is more than the partitions that a cluster can have, the catalog included.
const ownersMax = 1 << 13

// Open opens the log and creates it if needed. It returns an error within a second if another process has it
// open, and one that wraps ErrOtherKind if its entries are elsewhere.
func Open(cfg Config) (*Log, error) {
	dir := filepath.Dir(cfg.Path)
	values, ranges, err := openValues(&cfg)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", cfg.Path, err)
	}
	store, ranges, err := openKind(&cfg, values, ranges)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", cfg.Path, err), values.Close())
	}
	l := &Log{
		path:          cfg.Path,
		files:         cfg.FS,
		store:         store,
		diskSpace:     disk.NewMonitor(cfg.FS, dir, cfg.Logger),
		snapshotSlots: make(chan struct{}, concurrentSnapshotsMax), checkSlot: make(chan struct{}, 1),
		groups: make(map[fsm.PartitionID]*Group),
		failed: make(map[*Group]error),
		ranges: ranges,
	}
	if s, ok := store.(*journalStore); ok {
		l.journal = s.journal
	}
	if err := l.acceptLoss(); err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", cfg.Path, err), l.Close())
	}
	return l, nil
}

// openValues fills in the defaults of a configuration and opens the raft-boltdb file, or creates it. The ranges are those of the
// entries in it.
func openValues(cfg *Config) (Store, map[fsm.PartitionID]IndexRange, error) {
	if cfg.FS == nil {
		cfg.FS = disk.OS{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Kind = cmp.Or(cfg.Kind, Journal)
	dir := filepath.Dir(cfg.Path)
	if err := cfg.FS.MkdirAll(dir, disk.FolderMode); err != nil {
		return nil, nil, err
	}
	open := cfg.OpenStore
	if open == nil {
		open = func(string) (Store, map[fsm.PartitionID]IndexRange, error) { return openBolt(cfg) }
	}
	values, ranges, err := open(cfg.Path)
	if err != nil {
		return nil, nil, err
	}
	if err := cfg.FS.SyncFolder(dir); err != nil {
		return nil, nil, errors.Join(err, values.Close())
	}
	return values, ranges, nil
}

// CutUndecided cuts a batch at the end of the journal of a closed log that cannot be read and may have been confirmed
// (journal.ErrUndecided). What only this batch confirmed is lost. It reports whether there was one.
func CutUndecided(cfg Config) (cut bool, err error) {
	cfg.Kind, cfg.cutUndecided = Journal, true
	l, err := Open(cfg)
	if err != nil {
		return false, err
	}
	return l.journal.HasCut(), l.Close()
}

// Close closes the file. The groups must have been closed before.
func (l *Log) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.diskSpace.Close()
	if err := l.store.Close(); err != nil {
		return fmt.Errorf("close log %s: %w", l.path, err)
	}
	return nil
}

// Group returns the log of one group.
func (l *Log) Group(id fsm.PartitionID) (*Group, error) {
	if id > groupMax {
		return nil, fmt.Errorf("group %d: the log holds groups up to %d", id, groupMax)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[id]
	if g == nil {
		x := l.ranges[id]
		delete(l.ranges, id)
		g = &Group{log: l, id: id, first: x.First, last: x.Last, cache: entryCache{total: &l.cached}, deletes: make(chan struct{}, 1)}
		g.storedBelow.Store(math.MaxUint64)
		l.groups[id] = g
	}
	return g, nil
}

// Forget removes all data of a group: its entries, its term and its vote. The group must be closed, and its
// replica number must never be used again. An interrupted Forget can be repeated.
func (l *Log) Forget(id fsm.PartitionID) error {
	g, err := l.Group(id)
	if err != nil {
		return err
	}
	err = g.forgetDamage()
	if err == nil {
		err = g.clear()
	}
	if err != nil {
		return fmt.Errorf("forget group %d: %w", id, err)
	}
	for _, key := range []string{keyTerm, keyVote} {
		if err := g.put(key, nil); err != nil {
			return fmt.Errorf("forget group %d: %w", id, err)
		}
	}
	l.mu.Lock()
	delete(l.groups, id)
	l.mu.Unlock()
	// Last: from now on another replica of the group may use the range.
	if err := g.put(keyReplica, nil); err != nil {
		return fmt.Errorf("forget group %d: %w", id, err)
	}
	return l.acceptLoss()
}

// StopDamaged stops the replicas that run and of which entries were found damaged: not every entry is read by the replica.
func (l *Log) StopDamaged() {
	if l.journal == nil {
		return
	}
	l.mu.Lock()
	groups := maps.Clone(l.groups)
	l.mu.Unlock()
	for id, g := range groups {
		if err := l.journal.Damage(uint32(id)); err != nil && g.instanceClosed.Load() != nil {
			g.fail(fmt.Errorf("log of group %d: %w: %w", id, ErrDamaged, err))
		}
	}
}

// acceptLoss lets the journal free what it could not read, once no replica has a log there.
func (l *Log) acceptLoss() error {
	if l.journal == nil || l.journal.Lost() == nil {
		return nil
	}
	damaged, err := damagedOwners(l.store, l.journal)
	if err == nil && len(damaged) == 0 {
		l.journal.Accept()
	}
	return err
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
