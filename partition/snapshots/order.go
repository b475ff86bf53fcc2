package snapshots

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// A replica can write a snapshot of its own while the leader sends it a newer one. Raft does not order the two:
//
//	snapshot goroutine  freeze at 100 ------ write ------ publish - setLastSnapshot(100) - compact the log
//	main goroutine               receive 500 - publish - setLastSnapshot(500) - compact the log
//
// If the older one were published last, the log would begin behind a gap. If only setLastSnapshot(100) came
// last, the replica would vote as if its log ended before 500, although it has acknowledged 500. So a snapshot
// that is older than the newest one is refused, by term and index. And one that arrives stops the one that is
// being written, and waits until raft has finished with it, that is, until the future of Raft.Snapshot is
// complete: raft calls setLastSnapshot before. Until raft has installed it, no other one begins. The wait ends before raft
// hears of the snapshot (Receive): raft would wait on its main goroutine, for a sync of all segments if the
// disk is slow, and answer neither heartbeats nor votes.

// errOlderSnapshot refuses a snapshot that a newer one has replaced.
var errOlderSnapshot = errors.New("a newer snapshot exists")

// IsOlder reports whether an error of raft means that a newer snapshot exists. Raft returns only the text of an
// error of the snapshot store.
func IsOlder(err error) bool {
	return err != nil && strings.Contains(err.Error(), errOlderSnapshot.Error())
}

// checkOrder refuses a snapshot that is older than the newest one, or than one that is being installed. Called
// with mu held.
func (s *Store) checkOrder(p position) error {
	if s.newest != nil && p.compare(s.newest.end()) < 0 || p.compare(s.installing) < 0 {
		return fmt.Errorf("snapshot up to %d: %w", p.index, errOlderSnapshot)
	}
	return nil
}

// beginOwn notes that a snapshot of this replica is being written. EndOwn ends it. It is refused while another one is
// being installed.
func (s *Store) beginOwn(p position) (*ownSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOrder(p); err != nil {
		return nil, err
	}
	if s.installing != (position{}) {
		return nil, fmt.Errorf("snapshot up to %d while one up to %d is installed: %w", p.index, s.installing.index, errOlderSnapshot)
	}
	s.own = &ownSnapshot{done: make(chan struct{})}
	return s.own, nil
}

// EndOwn notes that raft has finished with a snapshot of this replica, whether it was written or not. It can be
// repeated.
func (s *Store) EndOwn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		close(s.own.done)
		s.own = nil
	}
}

// beginInstall stops a snapshot of this replica that is being written, waits until raft has finished with it,
// and refuses the received one if it is the older. endInstall ends it.
func (s *Store) beginInstall(p position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOrder(p); err != nil {
		return err
	}
	s.installing = p
	if own := s.own; own != nil {
		own.stopped.Store(true)
		s.mu.Unlock()
		<-own.done
		s.mu.Lock()
		if s.newest != nil && p.compare(s.newest.end()) < 0 { // it was complete
			s.installing = position{}
			return fmt.Errorf("snapshot up to %d: %w", p.index, errOlderSnapshot)
		}
	}
	return nil
}

// DelaysInstall reports whether a received snapshot waits until raft has finished with one of this replica.
func (s *Store) DelaysInstall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own != nil && s.own.stopped.Load()
}

func (s *Store) endInstall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.installing = position{}
}

// stoppableWriter writes until the snapshot is stopped.
type stoppableWriter struct {
	io.Writer

	own *ownSnapshot
}

func (w stoppableWriter) Write(p []byte) (int, error) {
	if w.own.stopped.Load() {
		return 0, errOlderSnapshot
	}
	return w.Writer.Write(p)
}
