package skip

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
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/savedlog"
	"github.com/peeklock/peeklock/partition/snapshots"
)

const (
	markFile = "skipped.json" // in the folder of a replica
	// EntriesMax is the number of entries of a replica that can be marked until a snapshot covers them.
	EntriesMax = 16
)

// Entry is an entry that an operator has marked.
type Entry struct {
	Index    uint64    `json:"index"`
	Checksum uint32    `json:"checksum"` // CRC-32C of its data
	Marked   time.Time `json:"marked"`
}

// ErrEntry means that an entry cannot be marked as skipped.
var ErrEntry = errors.New("entry cannot be skipped")

// Stored returns an entry of the log of a group that is not open, and the checksum of its data.
func Stored(log *raftlog.Log, id fsm.PartitionID, index uint64) (e savedlog.Entry, sum uint32, err error) {
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
		return e, 0, fmt.Errorf("%w: the log of partition %d has no entry %d: it has %d to %d here", ErrEntry, id, index, first, last)
	}
	var stored raft.Log
	if err := g.GetLog(index, &stored); err != nil {
		return e, 0, fmt.Errorf("read entry %d: %w", index, err)
	}
	e = savedlog.Entry{Index: stored.Index, Term: stored.Term, Type: uint8(stored.Type), Data: stored.Data}
	return e, Checksum(stored.Data), nil
}

// Checksum returns the CRC-32C of the data of an entry.
func Checksum(data []byte) uint32 { return binary.LittleEndian.Uint32(entrysum.Append(nil, data)) }

// Mark marks an entry of a replica, whose folder is dir and which is not open, as skipped. The error wraps ErrEntry if
// the entry is not in the log, has another checksum, is not one of commands, or is part of the newest snapshot. Marking it
// again changes nothing.
func Mark(log *raftlog.Log, id fsm.PartitionID, dir string, index uint64, checksum uint32) error {
	e, sum, err := Stored(log, id, index)
	if err != nil {
		return err
	}
	switch {
	case sum != checksum:
		return fmt.Errorf("%w: entry %d of partition %d has the checksum %08x here, and not %08x", ErrEntry, index, id, sum, checksum)
	case raft.LogType(e.Type) != raft.LogCommand:
		return fmt.Errorf("%w: entry %d of partition %d has no commands", ErrEntry, index, id)
	}
	files := log.FS()
	newest, _, err := snapshots.Find(files, filepath.Join(dir, "snap"))
	if err != nil {
		return err
	}
	if newest != nil && newest.Applied >= index {
		return fmt.Errorf("%w: entry %d of partition %d was applied here: the newest snapshot ends at %d", ErrEntry, index, id, newest.Applied)
	}
	marked, err := Entries(files, dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(marked, func(e Entry) bool { return e.Index == index && e.Checksum == checksum }) {
		return nil
	}
	if len(marked) >= EntriesMax {
		return fmt.Errorf("%w: %d entries of partition %d are marked already: replace the replica, or restore a backup", ErrEntry, len(marked), id)
	}
	return write(files, dir, append(marked, Entry{Index: index, Checksum: checksum, Marked: time.Now().UTC().Truncate(time.Second)}))
}

// Entries returns the entries of a replica that are marked, by the folder of the replica.
// With nil the files are those of the operating system.
func Entries(files disk.FS, dir string) (marked []Entry, err error) {
	if files == nil {
		files = disk.OS{}
	}
	path := filepath.Join(dir, markFile)
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

func write(files disk.FS, dir string, marked []Entry) error {
	data, err := json.Marshal(marked)
	if err == nil {
		err = disk.WriteSynced(files, filepath.Join(dir, markFile), data, disk.FileMode)
	}
	if err != nil {
		return fmt.Errorf("write the marks of skipped entries: %w", err)
	}
	return nil
}

// Marks are the marked entries of a replica.
type Marks []Entry

// Open reads the marks of a replica and drops those that its newest snapshot, which ends at applied, covers.
func Open(files disk.FS, dir string, applied uint64) (Marks, error) {
	marked, err := Entries(files, dir)
	if err != nil {
		return nil, err
	}
	before := len(marked)
	marked = slices.DeleteFunc(marked, func(e Entry) bool { return e.Index <= applied })
	switch {
	case len(marked) == before:
		return marked, nil
	case len(marked) == 0:
		return nil, files.RemoveAll(filepath.Join(dir, markFile))
	}
	return marked, write(files, dir, marked)
}

// Has reports whether an entry is marked. It is an error if another entry than the marked one has that index.
func (m Marks) Has(e *raft.Log) (bool, error) {
	for _, marked := range m {
		switch {
		case marked.Index != e.Index:
		case marked.Checksum != Checksum(e.Data):
			return false, fmt.Errorf("it has the checksum %08x, and the entry that was marked as skipped has %08x", Checksum(e.Data), marked.Checksum)
		default:
			return true, nil
		}
	}
	return false, nil
}
