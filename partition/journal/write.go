package journal

import (
	"fmt"
	"time"

	"github.com/peeklock/peeklock/partition/disk"
)

const (
	batchBytesMax     = 1 << 30 // of one append
	batchKeptBytesMax = 1 << 20 // of memory kept from one batch to the next
	// markDelay is how long nothing must have been appended before a mark is written: it says that the batch before
	// it was synced, so that damage to that batch is not taken for a write that was under way.
	markDelay = 100 * time.Millisecond
)

// Append appends entries of any groups, each at the next index of its group, and returns when they are on disk.
// A shortage of space or file descriptors (disk.IsRetriableWrite) has changed nothing; after any other error the journal
// accepts no more writes.
func (j *Journal) Append(entries []Entry) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if err := j.checkNext(entries); err != nil {
		return err
	}
	batch := beginBatch(j.buffer)
	places := make([]place, len(entries))
	for i := range entries {
		places[i] = place{offset: uint32(len(batch)), bytes: uint32(len(entries[i].Data) + len(entries[i].Extensions))}
		batch = appendRecord(batch, kindAppend, &entries[i])
	}
	s, offset, err := j.write(batch, len(entries))
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range entries {
		places[i].segment, places[i].offset = s.seg, places[i].offset+offset
		if err := j.setPlace(&entries[i], places[i]); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRange deletes the entries of a group from low to high, which must be at either end of the group, and
// returns when that is on disk. Errors are those of Append.
func (j *Journal) DeleteRange(group uint32, low, high uint64) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	j.mu.RLock()
	var held Range
	if g := j.groups[group]; g != nil {
		held = g.rangeOf()
	}
	j.mu.RUnlock()
	switch {
	case held.Last == 0 || low > held.Last || high < held.First:
		return nil
	case low > held.First && high < held.Last:
		return fmt.Errorf("delete %d to %d of group %d: a range inside the log", low, high, group)
	}
	batch := appendRecord(beginBatch(j.buffer), kindDelete, &Entry{Group: group, Index: low, Term: high})
	if _, _, err := j.write(batch, 1); err != nil {
		return err
	}
	j.mu.Lock()
	err := j.deletePlaces(group, low, high)
	j.mu.Unlock()
	j.wakeCleaner()
	return err
}

// Forget deletes all entries of a group, also those that cannot be read, and returns when that is on disk: Damage reports
// nothing of the group anymore. Errors are those of Append.
func (j *Journal) Forget(group uint32) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	batch := appendRecord(beginBatch(j.buffer), kindForget, &Entry{Group: group})
	if _, _, err := j.write(batch, 1); err != nil {
		return err
	}
	j.mu.Lock()
	j.dropPlaces(group)
	j.forgotten[group] = true
	j.mu.Unlock()
	j.wakeCleaner()
	return nil
}

// checkNext checks that the entries continue their groups.
func (j *Journal) checkNext(entries []Entry) error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var group uint32
	var next uint64
	size := 0
	for i := range entries {
		e := &entries[i]
		if size += recordHeadBytes + len(e.Data) + len(e.Extensions); size > batchBytesMax {
			return fmt.Errorf("append: more than %d bytes at once", batchBytesMax)
		}
		if i == 0 || e.Group != group {
			group, next = e.Group, e.Index
			if g := j.groups[group]; g != nil && len(g.places) > 0 {
				next = g.rangeOf().Last + 1
			}
		}
		if e.Index != next || e.Index == 0 {
			return fmt.Errorf("append %d to group %d: the next is %d", e.Index, group, next)
		}
		next++
	}
	return nil
}

// write writes a batch and syncs it. Called with the turn. It returns the segment and the offset of the batch.
func (j *Journal) write(batch []byte, records int) (*segment, uint32, error) {
	if cap(batch) <= batchKeptBytesMax {
		j.buffer = batch
	}
	if j.failed != nil {
		return nil, 0, j.failed
	}
	s, offset, err := j.writeAndSync(batch, records)
	if err != nil && !disk.IsRetriableWrite(err) {
		j.failed = fmt.Errorf("journal %s accepts no more writes: %w", j.dir, err)
	}
	return s, offset, err
}

func (j *Journal) writeAndSync(batch []byte, records int) (*segment, uint32, error) {
	length := roundUp(len(batch))
	if len(j.segments) == 0 || j.partial || j.end+uint64(length) > j.newest().base+j.newest().capacity() {
		if err := j.createSegment(length); err != nil {
			return nil, 0, err
		}
		j.wakeCleaner()
	}
	s := j.newest()
	batch = endBatch(batch, batchHead{id: j.id, position: j.end, synced: j.synced, records: uint32(records)})
	offset := s.offsetOf(j.end)
	if _, err := s.file.WriteAt(batch, offset); err != nil {
		j.partial = true
		return nil, 0, err
	}
	if err := disk.SyncData(s.file); err != nil {
		return nil, 0, err
	}
	j.end += uint64(len(batch))
	j.synced = j.end
	j.marked = records == 0
	if !j.marked {
		j.mark.Reset(markDelay)
	}
	j.askForSpare()
	return s, uint32(offset), nil
}

// writeMark writes a batch without records, if the newest batch is none: it says that those before it were
// synced.
func (j *Journal) writeMark() {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if j.marked || j.failed != nil || len(j.segments) == 0 {
		return
	}
	if _, _, err := j.write(beginBatch(nil), 0); err != nil {
		j.logger.Warn("failed to write a mark to the journal", "error", err)
	}
}
