package snapshots

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// errOtherState means that a snapshot holds another state than the one that was frozen.
var errOtherState = errors.New("the loaded state has another digest than the frozen one")

// ErrInUse means that a snapshot is being sent or installed.
var ErrInUse = errors.New("the snapshot is being sent, or one is being installed")

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
// must still be the newest. It returns ErrInUse while failed is being sent, or another one is being installed.
func (h *Hold) Restore(failed *Snapshot, logFirst uint64) (bool, error) {
	s := h.store
	if h.snap == nil || logFirst > h.snap.Index+1 {
		return false, nil
	}
	s.mu.Lock()
	switch {
	case s.newest != failed:
		s.mu.Unlock()
		return false, nil
	case s.installing != (position{}) || failed.openStreams > 0:
		s.mu.Unlock()
		return false, ErrInUse
	}
	s.newest, h.snap.replaced = h.snap, false
	s.newestImageBytes.Store(h.snap.ImageBytes)
	s.mu.Unlock()
	if err := failed.SetAside(); err != nil {
		s.Fail(err) // the next open may find either
		return false, err
	}
	s.Bodies.ReleaseSegments(failed.Segments)
	return true, nil
}

// SetAside renames the folder of a snapshot that cannot be loaded, so that it is not found again. It removes the one that was set aside before.
func (s *Snapshot) SetAside() error {
	dir := filepath.Dir(s.Dir)
	former, err := s.files.ReadDir(dir)
	if err == nil {
		err = s.files.Rename(s.Dir, filepath.Join(dir, failedPrefix+s.id))
	}
	if err == nil {
		err = s.files.SyncFolder(dir)
	}
	if err != nil {
		return fmt.Errorf("set aside a snapshot: %w", err)
	}
	for _, e := range former {
		if strings.HasPrefix(e.Name(), failedPrefix) {
			_ = s.files.RemoveAll(filepath.Join(dir, e.Name())) // the next failure tries it again
		}
	}
	return nil
}

// imageChecker is implemented by machines that can check an image without building the state, as those of queues.
type imageChecker interface {
	CheckImage(r io.Reader) (digest uint64, err error)
}

// Check reads a snapshot of this replica and compares the digest of its state with that of the state that was frozen. With build it loads the
// state into a machine of its own, which costs the memory of the state meanwhile; otherwise it decodes the image as a stream, if the
// machine can do so. goOn is called before each read, and ends the check with its error.
func (s *Store) Check(snap *Snapshot, build bool, goOn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load snapshot %s: %v", snap.Dir, r)
		}
	}()
	image, err := snap.OpenImage()
	if err != nil {
		return err
	}
	machine := s.Machine(noBodies{})
	checker, ok := machine.(imageChecker)
	var digest uint64
	err = image.decode(func(r io.Reader) (err error) {
		r = abandonedReader{r, goOn}
		if ok && !build {
			digest, err = checker.CheckImage(r)
			return err
		}
		if err = machine.Restore(r); err == nil {
			if loaded, ok := machine.Image().(digestible); ok {
				digest = loaded.Digest()
			}
		}
		return err
	})
	if err == nil && digest != 0 && snap.frozenDigest != 0 && digest != snap.frozenDigest {
		err = fmt.Errorf("load snapshot %s: %w", snap.Dir, errOtherState)
	}
	return err
}

// abandonedReader reads until goOn returns an error.
type abandonedReader struct {
	io.Reader

	goOn func() error
}

func (r abandonedReader) Read(p []byte) (int, error) {
	if err := r.goOn(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
