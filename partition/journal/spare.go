package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/peeklock/peeklock/partition/disk"
)

// askForSpare wakes the preparer once the newest segment is half full. Called with the turn.
func (j *Journal) askForSpare() {
	s := j.newest()
	if j.spareAsked || j.end-s.base <= s.capacity()/2 {
		return
	}
	j.spareAsked = true
	select {
	case j.prepare <- struct{}{}:
	default:
	}
}

// runPreparer creates the files of segments in advance, until the journal is closed.
func (j *Journal) runPreparer() {
	for {
		select {
		case <-j.prepare:
		case <-j.closing:
			return
		}
		err := j.prepareSegment()
		for disk.IsOutOfFiles(err) && j.waitForFile() {
			err = j.prepareSegment()
		}
		if err != nil && !disk.IsShortage(err) { // the append that needs it tries again
			j.logger.Warn("failed to prepare a segment of the journal", "error", err)
		}
	}
}

// waitForFile waits a short time for a file descriptor; it returns false when the journal is closing.
func (j *Journal) waitForFile() bool {
	select {
	case <-time.After(disk.RetryInterval):
		return true
	case <-j.closing:
		return false
	}
}

// prepareSegment creates the file of the next segment.
func (j *Journal) prepareSegment() error {
	j.spareTurn <- struct{}{}
	defer func() { <-j.spareTurn }()
	j.mu.RLock()
	seg := j.newest().seg + 1
	j.mu.RUnlock()
	if j.spare != nil {
		return nil
	}
	var err error
	j.spare, err = j.reserve(seg, uint64(j.segmentBytes))
	return err
}

// takeSpare returns the file of a segment, prepared or new. Called with the turn of the spare.
func (j *Journal) takeSpare(seg uint32, size uint64) (*spareFile, error) {
	s := j.spare
	j.spare = nil
	if s != nil && s.seg == seg && s.size >= size {
		return s, nil
	}
	if s != nil { // too small: its file is replaced
		if err := s.file.Close(); err != nil {
			return nil, err
		}
	}
	return j.reserve(seg, size)
}

// reserve creates the file of a segment, of zeros, and makes it durable. A file that an earlier try has left is replaced.
// A shortage is an error of a write that can be tried again: the catalog does not know the file yet.
func (j *Journal) reserve(seg uint32, size uint64) (spare *spareFile, err error) {
	path := j.path(seg)
	defer func() {
		if disk.IsOutOfFiles(err) {
			err = &fs.PathError{Op: "write", Path: path, Err: err}
		}
	}()
	if err := j.files.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := disk.Allocate(j.files, path, int64(size)); err != nil {
		if disk.IsNoSpace(err) { // nothing has changed: it can be tried again
			err = &fs.PathError{Op: "write", Path: path, Err: err}
		}
		return nil, err
	}
	file, err := disk.OpenWritable(j.files, path)
	if err != nil {
		return nil, err
	}
	if err = file.Sync(); err == nil {
		err = j.files.SyncFolder(j.dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sync %s: %w", path, err), file.Close())
	}
	return &spareFile{seg, size, file}, nil
}
