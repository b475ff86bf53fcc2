package snapshots

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"

	"github.com/peeklock/peeklock/partition/disk"
)

// errOtherState means that a snapshot holds another state than the one that was frozen.
var errOtherState = errors.New("the loaded state has another digest than the frozen one")

// Hold keeps a snapshot on disk, and its segments, also when newer snapshots replace it.
type Hold struct {
	store *Store
	snap  *Snapshot // nil without one
}

// Hold keeps the newest snapshot, if there is one. Release must follow.
func (s *Store) Hold() *Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest != nil {
		s.newest.openStreams++
	}
	return &Hold{s, s.newest}
}

// Release ends the hold.
func (h *Hold) Release() {
	if h.snap != nil {
		h.store.release(h.snap)
	}
}

// Restore makes the held snapshot the newest one again in place of failed, whose folder is kept under another name, the newest
// of its kind. It reports whether it did: a log that begins at logFirst must reach back to the held one, and failed
// must still be the newest, and not be sent.
func (h *Hold) Restore(failed *Snapshot, logFirst uint64) (bool, error) {
	s := h.store
	if h.snap == nil || logFirst > h.snap.Index+1 {
		return false, nil
	}
	former, err := s.Files.ReadDir(s.Dir)
	if err != nil {
		return false, fmt.Errorf("put a snapshot back: %w", err)
	}
	s.mu.Lock()
	if s.newest != failed || s.installing != (position{}) || failed.openStreams > 0 {
		s.mu.Unlock()
		return false, nil
	}
	s.newest, h.snap.replaced = h.snap, false
	s.newestImageBytes.Store(h.snap.ImageBytes)
	s.mu.Unlock()
	err = s.Files.Rename(failed.Dir, filepath.Join(s.Dir, failedPrefix+failed.id))
	if err == nil {
		err = s.Files.SyncFolder(s.Dir)
	}
	if err != nil {
		s.Fail(err) // the next open may find either
		return false, fmt.Errorf("put a snapshot back: %w", err)
	}
	s.Bodies.ReleaseSegments(failed.Segments)
	for _, e := range former {
		if strings.HasPrefix(e.Name(), failedPrefix) {
			_ = s.Files.RemoveAll(filepath.Join(s.Dir, e.Name())) // the next failure tries it again
		}
	}
	return true, nil
}

// Check loads a snapshot of this replica into a machine of its own and compares the digest of its state with that of the state
// that was frozen. It costs the memory of the state meanwhile.
func (s *Store) Check(snap *Snapshot) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load snapshot %s: %v", snap.Dir, r)
		}
	}()
	machine := s.Machine(noBodies{})
	if err := snap.Load(machine); err != nil {
		return err
	}
	loaded, ok := machine.Image().(digestible)
	if ok && snap.frozenDigest != 0 && loaded.Digest() != snap.frozenDigest {
		return fmt.Errorf("load snapshot %s: %w", snap.Dir, errOtherState)
	}
	return nil
}

// CheckBytes reads the image of a snapshot and compares its checksum: it needs some KiB of memory, and tells nothing of a state that cannot
// be loaded.
func (s *Store) CheckBytes(snap *Snapshot) error {
	f, err := disk.Open(s.Files, filepath.Join(snap.Dir, imageFile))
	if err != nil {
		return fmt.Errorf("check snapshot: %w", disk.AsDamage(err))
	}
	sum := crc32.New(disk.Castagnoli)
	n, err := io.Copy(sum, bufio.NewReaderSize(disk.Reader(f), copyBufferBytes))
	if err = errors.Join(err, f.Close()); err == nil && (n != snap.ImageBytes || sum.Sum32() != snap.ImageSum) {
		err = fmt.Errorf("checksum: %w", disk.ErrDamaged)
	}
	if err != nil {
		return fmt.Errorf("check snapshot %s: %w", snap.Dir, err)
	}
	return nil
}
