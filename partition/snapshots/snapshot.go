package snapshots

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"
	"time"

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
// newest one is valid, by term and index (order.go). The one before exists only while the newest one is checked (verify.go).
const (
	manifestVersion   byte = 1
	snapshotTemporary      = "tmp"
	imageFile              = "image"
	refsFile               = "refs"
	manifestFile           = "manifest"
	refBytes               = 12
	copyBufferBytes        = 256 << 10
)

// Manifest describes a snapshot. Unknown keys are ignored, so that the previous release still opens the
// folder after a downgrade; a key that it must not ignore raises manifestVersion.
type Manifest struct {
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

// Snapshot is a snapshot on disk.
type Snapshot struct {
	Manifest

	Dir string

	// The store guards what follows.
	files       disk.FS
	id          string
	openStreams int // streams that send it, and holds
	// frozenDigest is the digest of the state that was frozen, 0 unless Frozen.Digested was set: it is not stored.
	frozenDigest uint64
	replaced     bool
}

// WrittenAt returns the time at which the snapshot was written; it is zero when a newer one has replaced it.
func (s *Snapshot) WrittenAt() (at time.Time) {
	if info, err := s.files.Stat(s.Dir); err == nil {
		at = info.ModTime()
	}
	return at
}

// Ends returns the index and term at which the snapshot ends, zeros without a snapshot.
func (s *Snapshot) Ends() (index, term uint64) {
	if s == nil {
		return 0, 0
	}
	return s.Index, s.Term
}

// Find reads the newest manifest under dir, nil when there is none, and returns the highest serial number there. It creates dir, removes unfinished snapshots
// and changes nothing else.
func Find(files disk.FS, dir string) (*Snapshot, uint64, error) {
	if err := files.MkdirAll(dir, disk.FolderMode); err != nil {
		return nil, 0, fmt.Errorf("open snapshots: %w", err)
	}
	names, err := files.ReadDir(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("open snapshots: %w", err)
	}
	for _, e := range names {
		if strings.HasPrefix(e.Name(), snapshotTemporary) {
			if err := files.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, 0, fmt.Errorf("open snapshots: %w", err)
			}
		}
	}
	return findExcept(files, dir, "")
}

// FindBefore reads the newest manifest beside that of newest, nil when there is none.
func FindBefore(newest *Snapshot) (*Snapshot, error) {
	s, _, err := findExcept(newest.files, filepath.Dir(newest.Dir), newest.id)
	return s, err
}

// findExcept reads the newest manifest under dir, and returns the highest serial number there. It ignores the folder of one name.
func findExcept(files disk.FS, dir, ignored string) (*Snapshot, uint64, error) {
	names, err := files.ReadDir(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("open snapshots: %w", err)
	}
	var newest string
	var end position
	var serial, newestSerial uint64
	for _, e := range names {
		var term, index, n uint64
		if _, err := fmt.Sscanf(e.Name(), "%d-%d-%d", &term, &index, &n); err != nil || e.Name() == ignored {
			continue
		}
		serial = max(serial, n)
		at := position{term, index}
		if order := at.compare(end); order > 0 || order == 0 && n > newestSerial {
			newest, end, newestSerial = e.Name(), at, n
		}
	}
	if newest == "" {
		return nil, serial, nil
	}
	s := &Snapshot{files: files, id: newest, Dir: filepath.Join(dir, newest)}
	if s.Manifest, err = readManifest(files, s.Dir); err != nil {
		return nil, 0, fmt.Errorf("open snapshot %s: %w", s.Dir, err)
	}
	return s, serial, nil
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

func readManifest(files disk.FS, dir string) (Manifest, error) {
	b, err := disk.ReadFile(files, filepath.Join(dir, manifestFile))
	if err != nil {
		return Manifest{}, disk.AsDamage(err)
	}
	var m Manifest
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

func writeManifest(files disk.FS, dir string, m Manifest) error {
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

// Load restores machine from the snapshot. Any mismatch is disk.ErrDamaged.
func (s *Snapshot) Load(machine Machine) error {
	image, err := s.OpenImage()
	if err != nil {
		return err
	}
	return image.Load(machine)
}

// Image is a snapshot that is loaded next, without opening another file.
type Image struct {
	*Snapshot

	file disk.File
	refs []fsm.Ref // only of a snapshot that a leader has sent
}

// OpenImage opens the files of the snapshot. Load must follow, which closes them.
func (s *Snapshot) OpenImage() (*Image, error) {
	var refs []fsm.Ref
	if s.Remapped {
		var err error
		if refs, err = s.readRefs(); err != nil {
			return nil, err
		}
	}
	f, err := disk.Open(s.files, filepath.Join(s.Dir, imageFile))
	if err != nil {
		return nil, fmt.Errorf("load snapshot: %w", disk.AsDamage(err))
	}
	return &Image{s, f, refs}, nil
}

// Load restores machine from the snapshot and closes its files. Any mismatch is disk.ErrDamaged.
func (s *Image) Load(machine Machine) error {
	if err := s.decode(machine.Restore); err != nil {
		return err
	}
	return s.mapRefs(machine)
}

// decode calls a function that reads the image to its end, compares the checksum, and closes the file.
func (s *Image) decode(read func(io.Reader) error) error {
	f := s.file
	sum := crc32.New(disk.Castagnoli)
	r := bufio.NewReaderSize(io.TeeReader(disk.Reader(f), sum), copyBufferBytes)
	err := read(r)
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
		return fmt.Errorf("load snapshot %s: %w", s.Dir, err)
	}
	return nil
}

// mapRefs replaces the references of the sender in a machine that was loaded from a received snapshot.
func (s *Image) mapRefs(machine Machine) error {
	if !s.Remapped {
		return nil
	}
	refs, visited := s.refs, 0
	machine.Refs(func(_ fsm.Owner, ref fsm.Ref) fsm.Ref {
		if ref.Segment == 0 || visited >= len(refs) {
			visited++
			return ref
		}
		visited++
		return refs[visited-1]
	})
	if visited != len(refs) {
		return fmt.Errorf("load snapshot %s: %d references where %d bodies came: %w", s.Dir, visited, len(refs), disk.ErrDamaged)
	}
	return nil
}

func (s *Snapshot) readRefs() ([]fsm.Ref, error) {
	b, err := disk.ReadFile(s.files, filepath.Join(s.Dir, refsFile))
	if err != nil {
		return nil, fmt.Errorf("load snapshot: %w", disk.AsDamage(err))
	}
	n := len(b) - 4
	if n < 0 || n%refBytes != 0 || crc32.Checksum(b[:n], disk.Castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("load snapshot %s: references: checksum: %w", s.Dir, disk.ErrDamaged)
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

// failedPrefix begins the name of the folder of a snapshot that could not be loaded: the newest one of them is kept for an
// investigation.
const failedPrefix = "failed-"

// Machine is a machine that a snapshot can be loaded into.
type Machine interface {
	// Restore replaces the state with an image.
	Restore(r io.Reader) error
	// Refs calls visit for every body reference, in a fixed order, and stores the reference that visit returns.
	Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref)
	// Image freezes the state.
	Image() fsm.Image
}

// noBodies is for a machine whose references are only listed.
type noBodies struct{}

func (noBodies) Append(fsm.Owner, []byte) fsm.Ref {
	panic("snapshots: append to a machine that is only read")
}

func (noBodies) Read(fsm.Ref) []byte { panic("snapshots: body read from a machine that is only read") }

func (noBodies) Release(fsm.Ref) { panic("snapshots: release in a machine that is only read") }

// position is where a snapshot ends.
type position struct{ term, index uint64 }

// end returns the position at which the snapshot ends.
func (m *Manifest) end() position { return position{m.Term, m.Index} }

// compare orders snapshots. What snapshots hold is committed, so their terms and indexes rise together.
func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.term, q.term), cmp.Compare(p.index, q.index))
}
