package snapshots

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

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

// Machine is a machine that a snapshot can be loaded into.
type Machine interface {
	// Restore replaces the state with an image.
	Restore(r io.Reader) error
	// Refs calls visit for every body reference, in a fixed order, and stores the reference that visit returns.
	Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref)
	// Image freezes the state.
	Image() fsm.Image
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

// List implements raft.SnapshotStore.
func (s *Store) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{s.newest.meta()}, nil
}

// Open implements raft.SnapshotStore. The snapshot and its segments are kept until the reader is closed.
func (s *Store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil || s.newest.id != id {
		return nil, nil, fmt.Errorf("snapshot %s no longer exists", id)
	}
	snap := s.newest
	snap.openStreams++
	return snap.meta(), &snapshotStream{store: s, snap: snap}, nil
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

// End returns the index at which the newest snapshot ends, 0 without one.
func (s *Store) End() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, _ := s.newest.Ends()
	return index
}

// Create implements raft.SnapshotStore, for snapshots of this replica and those that a leader sends.
func (s *Store) Create(_ raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.create(index, term, conf, confIndex)
	if err != nil {
		return nil, err // not a nil *snapshotSink
	}
	return sink, nil
}

func (s *Store) create(index, term uint64, conf raft.Configuration, confIndex uint64) (*snapshotSink, error) {
	s.mu.Lock()
	s.serial++
	id := fmt.Sprintf("%d-%d-%d", term, index, s.serial)
	s.mu.Unlock()
	dir := filepath.Join(s.Dir, snapshotTemporary+"-"+id)
	if err := s.Files.Mkdir(dir, disk.FolderMode); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	return &snapshotSink{store: s, id: id, dir: dir, Manifest: Manifest{
		Index: index, Term: term, Configuration: raft.EncodeConfiguration(conf), ConfigurationIndex: confIndex,
	}}, nil
}
