package journal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/partition/disk"
)

// openSegment opens a segment of the catalog. It returns an error that wraps errForeign for a segment of another journal, and
// one that wraps fs.ErrNotExist or disk.ErrDamaged if the segment is lost.
func (j *Journal) openSegment(head segmentHead) (*segment, error) {
	path := j.path(head.seg)
	file, err := disk.OpenWritable(j.files, path)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	b := make([]byte, segmentHeadBytes)
	info, err := file.Stat()
	if err == nil && uint64(info.Size()) < head.size {
		err = fmt.Errorf("%s has %d bytes and should have %d: %w", path, info.Size(), head.size, disk.ErrDamaged)
	}
	if err == nil {
		err = disk.ReadAt(file, b, 0)
	}
	if want := head.encode(); err == nil && !bytes.Equal(b[:segmentHeadEnd], want[:segmentHeadEnd]) {
		if isSegmentHead(b) {
			err = fmt.Errorf("%s is not segment %d of journal %x: %w", path, head.seg, head.id, errForeign)
		} else { // the catalog has all that it says
			j.logger.Warn("head of a segment of the journal was damaged, and is written again", "segment", path)
			_, err = file.WriteAt(want, 0)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open segment: %w", err), file.Close())
	}
	return &segment{segmentHead: head, file: file}, nil
}

// createSegment creates the segment that follows and enters it into the catalog. Everything that the newest
// segment holds is synced. Called with the turn.
func (j *Journal) createSegment(batch int) error {
	j.spareTurn <- struct{}{}
	defer func() { <-j.spareTurn }()
	head := segmentHead{id: j.id, seg: 1, base: j.end}
	if n := len(j.segments); n > 0 {
		head.seg = j.segments[n-1].seg + 1
	}
	spare, err := j.takeSpare(head.seg, uint64(max(j.segmentBytes, segmentHeadBytes+batch)))
	if err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	head.size = spare.size
	s := &segment{segmentHead: head, file: spare.file}
	if _, err = s.file.WriteAt(head.encode(), 0); err == nil {
		err = disk.SyncData(s.file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create segment: %w", err), s.close())
	}
	all := append(j.segments[:len(j.segments):len(j.segments)], s)
	if err := j.catalog.Set(keySegments, encodeCatalog(all)); err != nil {
		return errors.Join(fmt.Errorf("enter segment %d into the catalog: %w", head.seg, err), s.close())
	}
	j.mu.Lock()
	j.segments = all
	j.mu.Unlock()
	j.partial, j.spareAsked = false, false
	return nil
}

// listSegments returns the names of the files of segments in the folder.
func (j *Journal) listSegments() ([]string, error) {
	entries, err := j.files.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), segmentSuffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
