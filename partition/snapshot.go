package partition

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/partition/disk"
)

// A snapshot on disk is a folder snap/<term>-<index>-<n>:
//
//	image     the image of the machine
//	refs      only of a snapshot that a leader has sent: the references of its bodies here,
//	          12 bytes each in the order of Machine.Refs, then a CRC-32C
//	manifest  version byte, CRC-32C, JSON: raft's metadata, sizes, segments
//
// It is written under a name that begins with "tmp", synced and renamed; n rises with every snapshot. The
// newest one is valid, by term and index (snapshot_order.go). There is no falling back to an older one: the log behind it may have been deleted.
const (
	manifestVersion   byte = 1
	snapshotTemporary      = "tmp"
	imageFile              = "image"
	refsFile               = "refs"
	manifestFile           = "manifest"
	refBytes               = 12
	copyBufferBytes        = 256 << 10
)

// manifest describes a snapshot. Unknown keys are ignored, so that the previous release still opens the
// folder after a downgrade; a key that it must not ignore raises manifestVersion.
type manifest struct {
	Index              uint64                  `json:"Index"`
	Term               uint64                  `json:"Term"`
	Configuration      []byte                  `json:"Configuration"`
	ConfigurationIndex uint64                  `json:"ConfigurationIndex"`
	Applied            uint64                  `json:"Applied"` // index up to which the image has applied entries; they are skipped
	Clock              fsm.Instant             `json:"Clock"`
	ImageBytes         int64                   `json:"ImageBytes"`
	ImageSum           uint32                  `json:"ImageSum"`
	Remapped           bool                    `json:"Remapped"` // refs in the image are the sender's, those of this replica are in the file refs
	Bodies             uint64                  `json:"Bodies"`
	BodyBytes          int64                   `json:"BodyBytes"` // of the records of all bodies
	Segments           []bodystore.SegmentSize `json:"Segments"`
	digest.State
}

// storedSnapshot is a snapshot on disk. The store guards it.
type storedSnapshot struct {
	manifest

	files       disk.FS
	id          string
	dir         string
	openStreams int // streams that send it
	replaced    bool
}

func (s *storedSnapshot) meta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version:            raft.SnapshotVersionMax,
		ID:                 s.id,
		Index:              s.Index,
		Term:               s.Term,
		Configuration:      raft.DecodeConfiguration(s.Configuration),
		ConfigurationIndex: s.ConfigurationIndex,
		Size:               streamHeaderBytes + s.ImageBytes + 4 + s.BodyBytes,
	}
}

// writtenAt returns the time at which the snapshot was written; it is zero when a newer one has replaced it.
func (s *storedSnapshot) writtenAt() (at time.Time) {
	if info, err := s.files.Stat(s.dir); err == nil {
		at = info.ModTime()
	}
	return at
}

// ends returns the index and term at which the snapshot ends, zeros without a snapshot.
func (s *storedSnapshot) ends() (index, term uint64) {
	if s == nil {
		return 0, 0
	}
	return s.Index, s.Term
}

// snapshotConfig configures a snapshotStore. Its functions may be called concurrently.
type snapshotConfig struct {
	files   disk.FS
	dir     string
	bodies  *bodystore.Store
	machine func(fsm.Bodies) snapshotMachine
	// fail is told of a failure after which neither the disk nor what is on it can be trusted.
	fail func(error)
	// received is called after every snapshot that a leader has sent.
	received func()
	logBytes func() uint64 // bytes of log applied since open
}

// snapshotMachine is a machine that a snapshot can be loaded into.
type snapshotMachine interface {
	// Restore replaces the state with an image.
	Restore(r io.Reader) error
	// Refs calls visit for every body reference, in a fixed order, and stores the reference that visit returns.
	Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref)
}

// snapshotStore is the raft.SnapshotStore of a group.
type snapshotStore struct {
	snapshotConfig

	newestImageBytes atomic.Int64
	sends            snapshotSends

	mu         sync.Mutex
	newest     *storedSnapshot
	serial     uint64
	own        *ownSnapshot // nil while raft takes none
	installing position     // of the snapshot of the leader that is being installed, zero for none
}

// newSnapshotStore returns the store of the snapshots in a folder, with what findSnapshot has found there.
func newSnapshotStore(cfg snapshotConfig, newest *storedSnapshot, serial uint64) *snapshotStore {
	s := &snapshotStore{snapshotConfig: cfg, newest: newest, serial: serial}
	if newest != nil {
		s.newestImageBytes.Store(newest.ImageBytes)
	}
	return s
}

// current returns the newest snapshot, nil without one, and the highest serial number that was used.
func (s *snapshotStore) current() (newest *storedSnapshot, serial uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest, s.serial
}

// imageBytes returns the size of the newest image, 0 without one.
func (s *snapshotStore) imageBytes() int64 { return s.newestImageBytes.Load() }

// findSnapshot reads the newest manifest under dir, nil when there is none. It removes unfinished snapshots
// and changes nothing else.
func findSnapshot(files disk.FS, dir string) (*storedSnapshot, uint64, error) {
	if err := files.MkdirAll(dir, disk.FolderMode); err != nil {
		return nil, 0, fmt.Errorf("open snapshots: %w", err)
	}
	names, err := files.ReadDir(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("open snapshots: %w", err)
	}
	var newest string
	var end position
	var serial, newestSerial uint64
	for _, e := range names {
		var term, index, n uint64
		switch {
		case strings.HasPrefix(e.Name(), snapshotTemporary):
			if err := files.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, 0, fmt.Errorf("open snapshots: %w", err)
			}
		default:
			if _, err := fmt.Sscanf(e.Name(), "%d-%d-%d", &term, &index, &n); err != nil {
				continue
			}
			serial = max(serial, n)
			at := position{term, index}
			if order := at.compare(end); order > 0 || order == 0 && n > newestSerial {
				newest, end, newestSerial = e.Name(), at, n
			}
		}
	}
	if newest == "" {
		return nil, serial, nil
	}
	s := &storedSnapshot{files: files, id: newest, dir: filepath.Join(dir, newest)}
	if s.manifest, err = readManifest(files, s.dir); err != nil {
		return nil, 0, fmt.Errorf("open snapshot %s: %w", s.dir, err)
	}
	return s, serial, nil
}

// dropOlder removes the folders that the newest snapshot has replaced.
func (s *snapshotStore) dropOlder() error {
	names, err := s.files.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("open snapshots: %w", err)
	}
	for _, e := range names {
		if s.newest == nil || e.Name() == s.newest.id {
			continue
		}
		if err := removeFolder(s.files, filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeFolder removes a snapshot so that a crash cannot leave a part of it under its name.
func removeFolder(files disk.FS, dir string) error {
	aside := filepath.Join(filepath.Dir(dir), snapshotTemporary+"-"+filepath.Base(dir))
	if err := files.Rename(dir, aside); err != nil {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	if err := files.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	return nil
}

func readManifest(files disk.FS, dir string) (manifest, error) {
	b, err := files.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return manifest{}, disk.AsDamage(err)
	}
	var m manifest
	switch {
	case len(b) < 5:
		return m, fmt.Errorf("manifest of %d bytes: %w", len(b), disk.ErrDamaged)
	case b[0] != manifestVersion:
		return m, fmt.Errorf("manifest version %d is not known to this binary", b[0])
	case crc32.Checksum(b[5:], disk.Castagnoli) != binary.LittleEndian.Uint32(b[1:]):
		return m, fmt.Errorf("manifest: checksum: %w", disk.ErrDamaged)
	}
	if err := json.Unmarshal(b[5:], &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

func writeManifest(files disk.FS, dir string, m manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	b := binary.LittleEndian.AppendUint32([]byte{manifestVersion}, crc32.Checksum(text, disk.Castagnoli))
	f, err := createFile(files, filepath.Join(dir, manifestFile))
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, text...))
	return f.finish(err)
}

// checksumFile is a file that is being written, with its size and checksum.
type checksumFile struct {
	path string
	f    disk.File
	w    *bufio.Writer
	sum  hash.Hash32
	size int64
}

func createFile(files disk.FS, path string) (*checksumFile, error) {
	f, err := disk.Create(files, path)
	if err != nil {
		return nil, fmt.Errorf("write snapshot: %w", err)
	}
	return &checksumFile{path: path, f: f, w: bufio.NewWriterSize(f, copyBufferBytes), sum: crc32.New(disk.Castagnoli)}, nil
}

func (f *checksumFile) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	f.sum.Write(p[:n])
	f.size += int64(n)
	return n, err
}

// finish flushes, syncs and closes the file; err is an earlier error of its writer.
func (f *checksumFile) finish(err error) error {
	if err == nil {
		err = f.w.Flush()
	}
	if err == nil {
		err = f.f.Sync()
	}
	if err = errors.Join(err, f.f.Close()); err != nil {
		return fmt.Errorf("write snapshot %s: %w", f.path, err)
	}
	return nil
}

// load restores machine from the snapshot. Any mismatch is disk.ErrDamaged.
func (s *storedSnapshot) load(machine snapshotMachine) error {
	f, err := disk.Open(s.files, filepath.Join(s.dir, imageFile))
	if err != nil {
		return fmt.Errorf("load snapshot: %w", disk.AsDamage(err))
	}
	sum := crc32.New(disk.Castagnoli)
	r := bufio.NewReaderSize(io.TeeReader(f, sum), copyBufferBytes)
	err = machine.Restore(r)
	if err == nil {
		if _, err = r.ReadByte(); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			err = fmt.Errorf("bytes left over: %w", disk.ErrDamaged)
		}
	}
	if err == nil && sum.Sum32() != s.ImageSum {
		err = fmt.Errorf("checksum: %w", disk.ErrDamaged)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("load snapshot %s: %w", s.dir, err)
	}
	if !s.Remapped {
		return nil
	}
	refs, err := s.readRefs()
	if err != nil {
		return err
	}
	visited := 0
	machine.Refs(func(_ fsm.Owner, ref fsm.Ref) fsm.Ref {
		if ref.Segment == 0 || visited >= len(refs) {
			visited++
			return ref
		}
		visited++
		return refs[visited-1]
	})
	if visited != len(refs) {
		return fmt.Errorf("load snapshot %s: %d references where %d bodies came: %w", s.dir, visited, len(refs), disk.ErrDamaged)
	}
	return nil
}

func (s *storedSnapshot) readRefs() ([]fsm.Ref, error) {
	b, err := s.files.ReadFile(filepath.Join(s.dir, refsFile))
	if err != nil {
		return nil, fmt.Errorf("load snapshot: %w", disk.AsDamage(err))
	}
	n := len(b) - 4
	if n < 0 || n%refBytes != 0 || crc32.Checksum(b[:n], disk.Castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("load snapshot %s: references: checksum: %w", s.dir, disk.ErrDamaged)
	}
	refs := make([]fsm.Ref, 0, n/refBytes)
	for p := b[:n]; len(p) > 0; p = p[refBytes:] {
		refs = append(refs, fsm.Ref{
			Segment: binary.LittleEndian.Uint32(p),
			Offset:  binary.LittleEndian.Uint32(p[4:]),
			Size:    binary.LittleEndian.Uint32(p[8:]),
		})
	}
	return refs, nil
}

// List implements raft.SnapshotStore.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{s.newest.meta()}, nil
}

// Open implements raft.SnapshotStore. The snapshot and its segments are kept until the reader is closed.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
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
func (s *snapshotStore) release(snap *storedSnapshot) {
	s.mu.Lock()
	snap.openStreams--
	gone := snap.replaced && snap.openStreams == 0
	s.mu.Unlock()
	if gone {
		s.removeReplaced(snap)
	}
}

// removeReplaced removes a replaced snapshot without open streams.
func (s *snapshotStore) removeReplaced(snap *storedSnapshot) {
	// The next open removes a folder that could not be removed.
	_ = removeFolder(s.files, snap.dir)
	s.bodies.ReleaseSegments(snap.Segments)
}

// end returns the index at which the newest snapshot ends, 0 without one.
func (s *snapshotStore) end() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, _ := s.newest.ends()
	return index
}

// Create implements raft.SnapshotStore, for snapshots of this replica and those that a leader sends.
func (s *snapshotStore) Create(_ raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.create(index, term, conf, confIndex)
	if err != nil {
		return nil, err // not a nil *snapshotSink
	}
	return sink, nil
}

func (s *snapshotStore) create(index, term uint64, conf raft.Configuration, confIndex uint64) (*snapshotSink, error) {
	s.mu.Lock()
	s.serial++
	id := fmt.Sprintf("%d-%d-%d", term, index, s.serial)
	s.mu.Unlock()
	dir := filepath.Join(s.dir, snapshotTemporary+"-"+id)
	if err := s.files.Mkdir(dir, disk.FolderMode); err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	return &snapshotSink{store: s, id: id, dir: dir, manifest: manifest{
		Index: index, Term: term, Configuration: raft.EncodeConfiguration(conf), ConfigurationIndex: confIndex,
	}}, nil
}

// frozenState is the state of a group at one index, as raft.FSMSnapshot.
type frozenState struct {
	bodies    *bodystore.Store
	image     fsm.Image
	applied   uint64
	clock     fsm.Instant
	digest    digest.State
	config    uint64                  // index of the configuration that was applied last
	segments  []bodystore.SegmentSize // retained until Release
	saved     func()                  // called when a snapshot is on disk
	published bool                    // a snapshot on disk now retains the segments
}

// Persist implements raft.FSMSnapshot. It runs beside apply. The caller of raft calls endOwn when raft has finished.
func (f *frozenState) Persist(to raft.SnapshotSink) error {
	s, ok := to.(*snapshotSink)
	if !ok {
		return fmt.Errorf("persist snapshot: sink is a %T", to)
	}
	// Raft takes a configuration for committed that a leader could not store, until the instance is reopened.
	if s.ConfigurationIndex != f.config {
		return fmt.Errorf("persist snapshot: raft's configuration is that of index %d, the applied one that of %d", s.ConfigurationIndex, f.config)
	}
	own, err := s.store.beginOwn(s.end())
	if err != nil {
		return err
	}
	if err := s.writeLocal(f, own); err != nil {
		s.store.endOwn()
		return err
	}
	f.saved()
	return nil
}

// Release implements raft.FSMSnapshot.
func (f *frozenState) Release() {
	if !f.published {
		f.bodies.ReleaseSegments(f.segments)
	}
}

// snapshotSink writes one snapshot.
type snapshotSink struct {
	manifest

	store    *snapshotStore
	id       string
	dir      string
	pipe     *io.PipeWriter // of a snapshot that the leader sends
	result   chan error
	local    bool
	whole    bool // all of a snapshot that the leader sends is here
	ordered  bool // beginInstall was called for it; its receiver calls endInstall
	finished bool
}

// ID implements raft.SnapshotSink.
func (s *snapshotSink) ID() string { return s.id }

// writeLocal writes a snapshot of this replica: segments first, then the image.
func (s *snapshotSink) writeLocal(f *frozenState, own *ownSnapshot) error {
	s.local = true
	if err := s.store.bodies.Sync(f.segments); err != nil {
		if !disk.IsOutOfFiles(err) {
			s.store.fail(err) // a disk that cannot sync may have lost earlier writes
		}
		return err
	}
	out, err := createFile(s.store.files, filepath.Join(s.dir, imageFile))
	if err != nil {
		return err
	}
	_, err = f.image.WriteTo(stoppableWriter{out, own})
	if err := out.finish(err); err != nil {
		return err
	}
	s.ImageBytes, s.ImageSum = out.size, out.sum.Sum32()
	s.Applied, s.Clock, s.Segments, s.State = f.applied, f.clock, f.segments, f.digest
	f.image.Refs(func(_ fsm.Owner, ref fsm.Ref) {
		if ref.Segment != 0 {
			s.Bodies++
			s.BodyBytes += bodystore.RecordBytes(ref)
		}
	})
	err = s.publish()
	f.published = s.finished
	return err
}

// publish makes the snapshot the newest one. A folder that could not be synced stops the replica: the next open
// may find the snapshot or not, so neither its segments nor those of the older one can be given up.
func (s *snapshotSink) publish() error {
	if err := writeManifest(s.store.files, s.dir, s.manifest); err != nil {
		return err
	}
	if err := s.syncFolder(s.dir); err != nil {
		return err
	}
	dir := filepath.Join(s.store.dir, s.id)
	if err := s.store.files.Rename(s.dir, dir); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	s.finished = true
	if err := s.syncFolder(s.store.dir); err != nil {
		return err
	}
	s.store.newestImageBytes.Store(s.ImageBytes)
	s.store.mu.Lock()
	old := s.store.newest
	s.store.newest = &storedSnapshot{manifest: s.manifest, files: s.store.files, id: s.id, dir: dir}
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
	err := s.store.files.SyncFolder(dir)
	for s.finished && disk.IsOutOfFiles(err) && s.store.bodies.WaitForSpace() {
		err = s.store.files.SyncFolder(dir)
	}
	if !s.finished && disk.IsOutOfFiles(err) {
		return err // nothing was synced, and the snapshot has not been renamed
	}
	if err != nil {
		s.store.fail(err)
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
	s.store.received()
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
		s.store.bodies.ReleaseSegments(s.Segments)
	}
	return s.store.files.RemoveAll(s.dir)
}
