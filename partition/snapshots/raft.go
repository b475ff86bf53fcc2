package snapshots

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

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
