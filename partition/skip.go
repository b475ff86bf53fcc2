package partition

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/entrysum"
	"github.com/peeklock/peeklock/partition/snapshots"
)

// An entry on which the machine panics stops every replica of its group, and stops each of them again when it is opened. An
// operator can mark the entry on the replicas of a quorum, by index and checksum, while their members are stopped. A replica
// with the mark does not perform the commands of the entry: each gets, and is remembered with, the answer Internal. All
// replicas with the mark do the same, so they stay equal. One without it stops again, and is replaced.

const (
	skippedFile = "skipped.json" // in the folder of a replica
	// SkippedMax is the number of entries of a replica that can be marked until a snapshot covers them.
	SkippedMax = 16
)

// SkippedEntry is an entry that an operator has marked.
type SkippedEntry struct {
	Index    uint64    `json:"index"`
	Checksum uint32    `json:"checksum"` // CRC-32C of its data
	Marked   time.Time `json:"marked"`
}

// ErrSkip means that an entry cannot be marked as skipped.
var ErrSkip = errors.New("entry cannot be skipped")

// StoredEntry returns an entry of the log of a group that is not open, and the checksum of its data.
func StoredEntry(log *Log, id fsm.PartitionID, index uint64) (e SavedEntry, sum uint32, err error) {
	g, err := log.Group(id)
	if err != nil {
		return e, 0, err
	}
	first, err := g.FirstIndex()
	if err != nil {
		return e, 0, err
	}
	last, err := g.LastIndex()
	if err != nil {
		return e, 0, err
	}
	if last == 0 || index < first || index > last {
		return e, 0, fmt.Errorf("%w: the log of partition %d has no entry %d: it has %d to %d here", ErrSkip, id, index, first, last)
	}
	var stored raft.Log
	if err := g.GetLog(index, &stored); err != nil {
		return e, 0, fmt.Errorf("read entry %d: %w", index, err)
	}
	e = SavedEntry{Index: stored.Index, Term: stored.Term, Type: uint8(stored.Type), Data: stored.Data}
	return e, checksumOf(stored.Data), nil
}

// checksumOf returns the CRC-32C of the data of an entry.
func checksumOf(data []byte) uint32 { return binary.LittleEndian.Uint32(entrysum.Append(nil, data)) }

// DecodeEntry decodes the commands of an entry, without their results. Commands that do not decode are missing, and the error
// tells why.
func DecodeEntry(e *SavedEntry) (got ReplayedEntry, err error) {
	if raft.LogType(e.Type) != raft.LogCommand {
		return got, nil
	}
	head, err := decodeEntry(e.Data)
	if err != nil {
		return got, err
	}
	got.Times = head.times
	for i := range head.count {
		command, err := head.next(i == head.count-1)
		if err != nil {
			return got, err
		}
		c := ReplayedCommand{}
		if c.Header, c.Command, err = fsm.DecodeCommand(command); err != nil {
			return got, fmt.Errorf("decode command %d of entry %d: %w", i+1, e.Index, err)
		}
		got.Commands = append(got.Commands, c)
	}
	return got, nil
}

// MarkSkipped marks an entry of a replica, whose folder is dir and which is not open, as skipped. The error wraps ErrSkip if
// the entry is not in the log, has another checksum, is not one of commands, or is part of the newest snapshot. Marking it
// again changes nothing.
func MarkSkipped(log *Log, id fsm.PartitionID, dir string, index uint64, checksum uint32) error {
	e, sum, err := StoredEntry(log, id, index)
	if err != nil {
		return err
	}
	switch {
	case sum != checksum:
		return fmt.Errorf("%w: entry %d of partition %d has the checksum %08x here, and not %08x", ErrSkip, index, id, sum, checksum)
	case raft.LogType(e.Type) != raft.LogCommand:
		return fmt.Errorf("%w: entry %d of partition %d has no commands", ErrSkip, index, id)
	}
	files := log.FS()
	newest, _, err := snapshots.Find(files, filepath.Join(dir, "snap"))
	if err != nil {
		return err
	}
	if newest != nil && newest.Applied >= index {
		return fmt.Errorf("%w: entry %d of partition %d was applied here: the newest snapshot ends at %d", ErrSkip, index, id, newest.Applied)
	}
	marked, err := SkippedEntries(files, dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(marked, func(s SkippedEntry) bool { return s.Index == index && s.Checksum == checksum }) {
		return nil
	}
	if len(marked) >= SkippedMax {
		return fmt.Errorf("%w: %d entries of partition %d are marked already: replace the replica, or restore a backup", ErrSkip, len(marked), id)
	}
	return writeSkipped(files, dir, append(marked, SkippedEntry{Index: index, Checksum: checksum, Marked: time.Now().UTC().Truncate(time.Second)}))
}

// SkippedEntries returns the entries of a replica that are marked, by the folder of the replica.
// With nil the files are those of the operating system.
func SkippedEntries(files disk.FS, dir string) (marked []SkippedEntry, err error) {
	if files == nil {
		files = disk.OS{}
	}
	path := filepath.Join(dir, skippedFile)
	data, err := files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &marked)
	}
	if err != nil {
		return nil, fmt.Errorf("read the marks of skipped entries %s: %w", path, err)
	}
	return marked, nil
}

func writeSkipped(files disk.FS, dir string, marked []SkippedEntry) error {
	data, err := json.Marshal(marked)
	if err == nil {
		err = disk.WriteSynced(files, filepath.Join(dir, skippedFile), data, disk.FileMode)
	}
	if err != nil {
		return fmt.Errorf("write the marks of skipped entries: %w", err)
	}
	return nil
}

// openSkipped reads the marks of this replica and drops those that its newest snapshot, which ends at applied, covers.
func (g *Group) openSkipped(applied uint64) error {
	files, dir := g.cfg.Log.FS(), g.cfg.Dir
	marked, err := SkippedEntries(files, dir)
	if err != nil {
		return err
	}
	before := len(marked)
	g.skipped = slices.DeleteFunc(marked, func(s SkippedEntry) bool { return s.Index <= applied })
	switch {
	case len(g.skipped) == before:
		return nil
	case len(g.skipped) == 0:
		return files.RemoveAll(filepath.Join(dir, skippedFile))
	}
	return writeSkipped(files, dir, g.skipped)
}

// skips reports whether an entry is marked as skipped. It is an error if another entry than the marked one has that index.
func (g *Group) skips(e *raft.Log) (bool, error) {
	for _, s := range g.skipped {
		switch {
		case s.Index != e.Index:
		case s.Checksum != checksumOf(e.Data):
			return false, fmt.Errorf("it has the checksum %08x, and the entry that was marked as skipped has %08x", checksumOf(e.Data), s.Checksum)
		default:
			return true, nil
		}
	}
	return false, nil
}

// poisonHint tells what to do about an entry on which the machine panics.
const poisonHint = `if every replica of the partition stops at this entry, see "An entry stops every replica" in the runbook`
