package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/peeklock/peeklock/partition/disk"
)

const segmentBytesMin = 4 * sectorBytes

// Open opens the journal and creates it if the catalog has none. It cuts what a crash has left of a batch that
// was never confirmed. Damage reports which groups have entries that cannot be read.
func Open(cfg Config) (*Journal, error) {
	j := &Journal{
		files: cfg.FS, dir: cfg.Dir, catalog: cfg.Catalog, segmentBytes: cfg.SegmentBytes, logger: cfg.Logger, cutUndecided: cfg.CutUndecided,
		forgotten: make(map[uint32]bool),
		turn:      make(chan struct{}, 1), groups: make(map[uint32]*groupIndex),
		spareTurn: make(chan struct{}, 1), prepare: make(chan struct{}, 1), clean: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	if j.segmentBytes == 0 {
		j.segmentBytes = SegmentBytesDefault
	}
	j.segmentBytes = roundUp(max(j.segmentBytes, segmentBytesMin))
	if err := j.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal %s: %w", cfg.Dir, err), j.closeSegments())
	}
	j.mark = time.AfterFunc(markDelay, j.writeMark)
	j.done.Go(j.runCleaner)
	j.done.Go(j.runPreparer)
	j.wakeCleaner()
	return j, nil
}

func (j *Journal) open() error {
	id, err := j.catalog.Get(KeyID)
	if err != nil {
		return err
	}
	if len(id) == 0 {
		return j.create()
	}
	if _, err := j.files.Stat(j.dir); err != nil {
		return err
	}
	if len(id) != idBytes {
		return fmt.Errorf("the id of the journal has %d bytes: %w", len(id), disk.ErrDamaged)
	}
	j.id = [idBytes]byte(id)
	return j.recover()
}

// create gives a new journal its id, before anything else is written.
func (j *Journal) create() error {
	if err := j.files.MkdirAll(j.dir, disk.FolderMode); err != nil {
		return err
	}
	names, err := j.listSegments()
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("the folder holds %d segments that the log beside it does not know: restore the log that belongs to them", len(names))
	}
	_, _ = rand.Read(j.id[:]) // never fails
	if err := j.files.SyncFolder(filepath.Dir(j.dir)); err != nil {
		return err
	}
	return j.catalog.Set(KeyID, j.id[:])
}

// Close ends the journal; nothing more is written. It may be called once.
func (j *Journal) Close() error {
	close(j.closing)
	j.mark.Stop()
	j.done.Wait()
	j.turn <- struct{}{}
	j.failed = errClosed
	<-j.turn
	return j.closeSegments()
}

func (j *Journal) closeSegments() error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var err error
	for _, s := range j.segments {
		err = errors.Join(err, s.close())
	}
	if j.spare != nil { // the next open removes the file
		err = errors.Join(err, j.spare.file.Close())
	}
	return err
}
