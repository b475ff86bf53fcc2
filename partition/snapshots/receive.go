package snapshots

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// Receive reads a snapshot that a leader sends, before raft knows of it. The reader that it returns hands the
// snapshot over to the sink into which raft copies it; done discards a snapshot that raft has not taken.
func (s *Store) Receive(request *raft.InstallSnapshotRequest, from io.Reader) (whole io.Reader, done func(), err error) {
	sink, err := s.create(request.LastLogIndex, request.LastLogTerm, raft.Configuration{}, 0)
	if err != nil {
		return nil, nil, err
	}
	size, err := io.Copy(sink, from)
	if err == nil && size != request.Size {
		err = fmt.Errorf("%d of %d bytes: %w", size, request.Size, io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = sink.complete()
	}
	if err == nil {
		err = s.beginInstall(sink.end())
		sink.ordered = err == nil
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("receive snapshot %s: %w", sink.id, err), sink.Cancel())
	}
	r := &receivedSnapshot{sink: sink, size: size}
	return r, func() {
		r.discard()
		s.endInstall()
	}, nil
}

// receivedSnapshot is a snapshot that is here in whole and that raft has not taken yet. Raft copies a reader into a
// sink (1.7.3, installSnapshot). This reader has no bytes: its error carries it to snapshotSink.ReadFrom, so that
// nothing is copied on raft's main goroutine.
type receivedSnapshot struct {
	size int64

	mu   sync.Mutex
	sink *snapshotSink // nil once it is taken or discarded
}

// Read implements io.Reader.
func (r *receivedSnapshot) Read([]byte) (int, error) { return 0, handoverError{r} }

func (r *receivedSnapshot) take() *snapshotSink {
	r.mu.Lock()
	defer r.mu.Unlock()
	sink := r.sink
	r.sink = nil
	return sink
}

func (r *receivedSnapshot) discard() {
	if sink := r.take(); sink != nil {
		_ = sink.Cancel() // the next open removes a folder that could not be removed
	}
}

// handoverError is the error of a reader that stands for a snapshot.
type handoverError struct{ snapshot *receivedSnapshot }

// Error implements error.
func (handoverError) Error() string { return "the snapshot is handed over, not read" }

// ReadFrom implements io.ReaderFrom: it takes over a received snapshot, or the bytes of one.
func (s *snapshotSink) ReadFrom(r io.Reader) (int64, error) {
	buf := make([]byte, copyBufferBytes)
	n, err := r.Read(buf)
	var handover handoverError
	if errors.As(err, &handover) {
		return handover.snapshot.size, s.adopt(handover.snapshot.take())
	}
	if n > 0 {
		if _, writeErr := s.Write(buf[:n]); writeErr != nil {
			return int64(n), writeErr
		}
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return int64(n), err
	}
	more, err := io.CopyBuffer(struct{ io.Writer }{s}, struct{ io.Reader }{r}, buf)
	return int64(n) + more, err
}

// adopt takes over what another sink has received, with the configuration of this one.
func (s *snapshotSink) adopt(other *snapshotSink) error {
	if other == nil || other.Index != s.Index || other.Term != s.Term {
		return fmt.Errorf("receive snapshot %s: the part received so far no longer exists", s.id)
	}
	if err := s.store.Files.RemoveAll(s.dir); err != nil {
		return errors.Join(fmt.Errorf("receive snapshot %s: %w", s.id, err), other.Cancel())
	}
	received := other.Manifest
	received.Configuration, received.ConfigurationIndex = s.Configuration, s.ConfigurationIndex
	s.Manifest, s.dir, s.whole, s.ordered = received, other.dir, true, other.ordered
	return nil
}
