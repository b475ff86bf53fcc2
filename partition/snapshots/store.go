package snapshots

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
)

// Config configures a Store. Its functions are called concurrently.
type Config struct {
	Files   disk.FS
	Dir     string // of the snapshots alone
	Bodies  *bodystore.Store
	Machine func(fsm.Bodies) Machine // an empty one
	// Fail is told of a failure after which neither the disk nor what is on it can be trusted.
	Fail func(error)
	// Received is called after every snapshot that a leader has sent.
	Received func()
	// LogBytes returns the bytes of log that were applied since the replica was opened.
	LogBytes func() uint64
}

// Store is the raft.SnapshotStore of a group. Its methods may be called concurrently, unless they say otherwise.
type Store struct {
	Config

	newestImageBytes atomic.Int64
	sends            snapshotSends

	mu         sync.Mutex
	newest     *Snapshot
	serial     uint64
	own        *ownSnapshot // nil while raft takes none
	installing position     // of the snapshot of the leader that is being installed, zero for none
}

// New returns the store of the snapshots in a folder, with what Find has found there.
func New(cfg Config, newest *Snapshot, serial uint64) *Store {
	s := &Store{Config: cfg, newest: newest, serial: serial}
	if newest != nil {
		s.newestImageBytes.Store(newest.ImageBytes)
	}
	return s
}

// Newest returns the newest snapshot, nil without one, and the highest serial number that was used.
func (s *Store) Newest() (newest *Snapshot, serial uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest, s.serial
}

// ImageBytes returns the size in bytes of the newest image, 0 without one.
func (s *Store) ImageBytes() int64 { return s.newestImageBytes.Load() }

// DropOlder removes the folders that the newest snapshot has replaced, but none of a snapshot that could not be loaded. It must be called before raft uses the store.
func (s *Store) DropOlder() error {
	names, err := s.Files.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("open snapshots: %w", err)
	}
	for _, e := range names {
		if s.newest == nil || e.Name() == s.newest.id || strings.HasPrefix(e.Name(), failedPrefix) {
			continue
		}
		if err := removeFolder(s.Files, filepath.Join(s.Dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// release ends a stream.
func (s *Store) release(snap *Snapshot) {
	s.mu.Lock()
	snap.openStreams--
	gone := snap.replaced && snap.openStreams == 0
	s.mu.Unlock()
	if gone {
		s.removeReplaced(snap)
	}
}

// removeReplaced removes a replaced snapshot without open streams.
func (s *Store) removeReplaced(snap *Snapshot) {
	// The next open removes a folder that could not be removed.
	_ = removeFolder(s.Files, snap.Dir)
	s.Bodies.ReleaseSegments(snap.Segments)
}

// Ends returns the index and the term at which the newest snapshot ends, 0 without one.
func (s *Store) Ends() (index, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest.Ends()
}

// LogKeptFrom returns the index from which on the log is kept for replicas that get a snapshot, LogKeptNone for none.
func (s *Store) LogKeptFrom(now time.Time) uint64 {
	return s.sends.logKeptFrom(now, s.LogBytes())
}

// ownSnapshot is a snapshot of this replica that raft is taking.
type ownSnapshot struct {
	stopped atomic.Bool
	done    chan struct{} // closed when raft has finished with it
}
