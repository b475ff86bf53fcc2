package snapshots

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/partition/disk"
)

// Frozen is the state of a group at one index, as raft.FSMSnapshot. It is written by Persist or as a backup, and then released.
type Frozen struct {
	Bodies   *bodystore.Store
	Image    fsm.Image
	Applied  uint64 // index of the newest entry in it
	Clock    fsm.Instant
	Digest   digest.State
	Config   uint64                  // index of the configuration that was applied last
	Segments []bodystore.SegmentSize // retained until Release
	Saved    func()                  // called when a snapshot is on disk
	// Digested is set if Store.Check follows: the digest of Image is computed, which costs as much as writing it once more.
	Digested  bool
	published bool // a snapshot on disk now retains the segments
}

// Persist implements raft.FSMSnapshot. It runs beside apply. The caller of raft calls EndOwn when raft has finished.
func (f *Frozen) Persist(to raft.SnapshotSink) error {
	s, ok := to.(*snapshotSink)
	if !ok {
		return fmt.Errorf("persist snapshot: sink is a %T", to)
	}
	// Raft takes a configuration for committed that a leader could not store, until the instance is reopened.
	if s.ConfigurationIndex != f.Config {
		return fmt.Errorf("persist snapshot: raft's configuration has index %d, the applied one has index %d", s.ConfigurationIndex, f.Config)
	}
	own, err := s.store.beginOwn(s.end())
	if err != nil {
		return err
	}
	if err := s.writeLocal(f, own); err != nil {
		s.store.EndOwn()
		return err
	}
	f.Saved()
	return nil
}

// Release implements raft.FSMSnapshot.
func (f *Frozen) Release() {
	if !f.published {
		f.Bodies.ReleaseSegments(f.Segments)
	}
}

// snapshotSink writes one snapshot.
type snapshotSink struct {
	Manifest

	store    *Store
	id       string
	dir      string
	pipe     *io.PipeWriter // of a snapshot that the leader sends
	result   chan error
	local    bool
	digest   uint64 // of the state, if it was computed
	whole    bool   // all of a snapshot that the leader sends is here
	ordered  bool   // beginInstall was called for it; its receiver calls endInstall
	finished bool
}

// ID implements raft.SnapshotSink.
func (s *snapshotSink) ID() string { return s.id }

// writeLocal writes a snapshot of this replica: segments first, then the image.
func (s *snapshotSink) writeLocal(f *Frozen, own *ownSnapshot) error {
	s.local = true
	if err := s.store.Bodies.Sync(f.Segments); err != nil {
		if !disk.IsOutOfFiles(err) {
			s.store.Fail(err) // a disk that cannot sync may have lost earlier writes
		}
		return err
	}
	out, err := createFile(s.store.Files, filepath.Join(s.dir, imageFile))
	if err != nil {
		return err
	}
	_, err = f.Image.WriteTo(stoppableWriter{out, own})
	if err := out.finish(err); err != nil {
		return err
	}
	s.ImageBytes, s.ImageSum = out.size, out.sum.Sum32()
	s.Applied, s.Clock, s.Segments, s.State = f.Applied, f.Clock, f.Segments, f.Digest
	f.Image.Refs(func(_ fsm.Owner, ref fsm.Ref) {
		if ref.Segment != 0 {
			s.Bodies++
			s.BodyBytes += bodystore.RecordBytes(ref)
		}
	})
	if state, ok := f.Image.(digestible); ok && f.Digested {
		s.digest = state.Digest()
	}
	err = s.publish()
	f.published = s.finished
	return err
}

// publish makes the snapshot the newest one. A folder that could not be synced stops the replica: the next open
// may find the snapshot or not, so neither its segments nor those of the older one can be given up.
func (s *snapshotSink) publish() error {
	if err := writeManifest(s.store.Files, s.dir, s.Manifest); err != nil {
		return err
	}
	if err := s.syncFolder(s.dir); err != nil {
		return err
	}
	dir := filepath.Join(s.store.Dir, s.id)
	if err := s.store.Files.Rename(s.dir, dir); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	s.finished = true
	if err := s.syncFolder(s.store.Dir); err != nil {
		return err
	}
	s.store.newestImageBytes.Store(s.ImageBytes)
	s.store.mu.Lock()
	old := s.store.newest
	s.store.newest = &Snapshot{Manifest: s.Manifest, files: s.store.Files, id: s.id, Dir: dir, frozenDigest: s.digest}
	gone := false
	if old != nil {
		old.replaced = true
		gone = old.openStreams == 0
	}
	s.store.mu.Unlock()
	if gone {
		s.store.removeReplaced(old)
	}
	return nil
}

func (s *snapshotSink) syncFolder(dir string) error {
	err := s.store.Files.SyncFolder(dir)
	for s.finished && disk.IsOutOfFiles(err) && s.store.Bodies.WaitForSpace() {
		err = s.store.Files.SyncFolder(dir)
	}
	if !s.finished && disk.IsOutOfFiles(err) {
		return err // nothing was synced, and the snapshot has not been renamed
	}
	if err != nil {
		s.store.Fail(err)
	}
	return err
}

// Write implements raft.SnapshotSink: it takes the bytes of a snapshot that the leader sends.
func (s *snapshotSink) Write(p []byte) (int, error) {
	if s.pipe == nil {
		r, w := io.Pipe()
		s.pipe, s.result = w, make(chan error, 1)
		go func() {
			err := s.receive(bufio.NewReaderSize(r, copyBufferBytes))
			r.CloseWithError(errors.Join(err, io.ErrClosedPipe))
			s.result <- err
		}()
	}
	return s.pipe.Write(p)
}

// complete waits until all that was written is on disk and checked.
func (s *snapshotSink) complete() error {
	if s.whole {
		return nil
	}
	if s.pipe == nil {
		return errors.New("nothing was written")
	}
	_ = s.pipe.Close()
	err := <-s.result
	s.pipe = nil
	s.whole = err == nil
	return err
}

// Close implements raft.SnapshotSink: the snapshot is valid when it returns nil.
func (s *snapshotSink) Close() error {
	if s.finished {
		return nil
	}
	err := s.complete()
	if err == nil {
		err = s.publishReceived()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("receive snapshot %s: %w", s.id, err), s.Cancel())
	}
	s.store.Received()
	return nil
}

// publishReceived makes a received snapshot the newest one, unless it is older.
func (s *snapshotSink) publishReceived() error {
	if !s.ordered {
		if err := s.store.beginInstall(s.end()); err != nil {
			return err
		}
		defer s.store.endInstall()
	}
	return s.publish()
}

// Cancel implements raft.SnapshotSink.
func (s *snapshotSink) Cancel() error {
	if s.finished {
		return nil
	}
	s.finished = true
	if s.pipe != nil {
		_ = s.pipe.CloseWithError(errors.New("cancelled"))
		<-s.result //nolint:errcheck // the error only reports the cancellation
	}
	if !s.local {
		s.store.Bodies.ReleaseSegments(s.Segments)
	}
	return s.store.Files.RemoveAll(s.dir)
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

// digestible is implemented by images that have a digest, as those of package fsm.
type digestible interface{ Digest() uint64 }

// receive reads a stream into the folder of the sink and into new segments.
func (s *snapshotSink) receive(r *bufio.Reader) error {
	h, err := readStreamHeader(r)
	if err != nil {
		return err
	}
	s.Applied, s.Clock, s.ImageBytes, s.Bodies, s.State = h.Applied, h.Clock, h.ImageBytes, h.Bodies, h.State
	s.Remapped = true
	if err := s.receiveImage(r); err != nil {
		return err
	}
	if err := s.receiveBodies(r); err != nil {
		return err
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("bytes left over: %w", disk.ErrDamaged)
	}
	err = s.store.Bodies.Sync(s.Segments)
	if err != nil && !disk.IsShortage(err) {
		s.store.Fail(err) // a disk that cannot sync may have lost earlier writes
	}
	return err
}

func (s *snapshotSink) receiveImage(r *bufio.Reader) error {
	out, err := createFile(s.store.Files, filepath.Join(s.dir, imageFile))
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, r, s.ImageBytes)
	if err := out.finish(err); err != nil {
		return err
	}
	s.ImageSum = out.sum.Sum32()
	var sum [4]byte
	if _, err := io.ReadFull(r, sum[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(sum[:]) != s.ImageSum {
		return fmt.Errorf("image: checksum: %w", disk.ErrDamaged)
	}
	return nil
}

// receiveBodies copies the records into new segments and writes the reference of each to the file refs.
func (s *snapshotSink) receiveBodies(r *bufio.Reader) error {
	out, err := createFile(s.store.Files, filepath.Join(s.dir, refsFile))
	if err != nil {
		return err
	}
	err = s.copyRecords(r, out)
	if err == nil {
		_, err = out.Write(binary.LittleEndian.AppendUint32(nil, out.sum.Sum32()))
	}
	return out.finish(err)
}

func (s *snapshotSink) copyRecords(r *bufio.Reader, refs io.Writer) (err error) {
	w := s.store.Bodies.NewImport()
	defer func() {
		s.Segments, err = w.Finish(err)
	}()
	var encoded [refBytes]byte
	for range s.Bodies {
		ref, err := w.Record(r)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(encoded[0:], ref.Segment)
		binary.LittleEndian.PutUint32(encoded[4:], ref.Offset)
		binary.LittleEndian.PutUint32(encoded[8:], ref.Size)
		if _, err := refs.Write(encoded[:]); err != nil {
			return err
		}
		s.BodyBytes += bodystore.RecordBytes(ref)
	}
	return nil
}
