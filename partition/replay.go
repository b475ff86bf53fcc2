package partition

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/partition/snapshots"
)

// Replay feeds the entries of one group, in their order, to a state machine of its own, without raft, a disk or
// members. It shows afterwards what the entries of a saved log did (see package savedlog). It must not be used
// concurrently.
type Replay struct {
	machine Machine
	rolling digest.Rolling
	applied uint64
}

// NewReplay returns the replay of a group's whole log, or, with the backup that the group was restored from, of its log
// behind that. Bodies that only the backup has are not read: the machine sees zeros instead.
func NewReplay(id fsm.PartitionID, backup io.Reader) (r *Replay, err error) {
	r = &Replay{}
	if id == fsm.CatalogPartition {
		r.machine = catalog.New()
	} else {
		r.machine = queue.New(&replayBodies{})
	}
	if backup == nil {
		return r, nil
	}
	info, h, err := snapshots.OpenBackup(backup)
	if err != nil {
		return nil, err
	}
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("read backup: %v", failed)
		}
	}()
	if err := r.machine.Restore(io.LimitReader(backup, h.ImageBytes)); err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	r.applied = info.Index
	r.rolling.Restore(h.State)
	return r, nil
}

// Apply applies the next entry. Entries that the state contains already are skipped.
func (r *Replay) Apply(e *SavedEntry) (got ReplayedEntry, err error) {
	if e.Index <= r.applied {
		return got, nil
	}
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("apply entry %d: %v", e.Index, failed)
		}
	}()
	stored := raft.Log{Index: e.Index, Term: e.Term, Type: raft.LogType(e.Type), Data: e.Data}
	if stored.Type != raft.LogCommand && stored.Type != raft.LogConfiguration {
		return got, nil // raft's own: no replica applies it
	}
	r.rolling.Checkpoint(r.applied, e.Index)
	r.rolling.BeginEntry(&stored)
	if stored.Type == raft.LogCommand {
		if err := r.perform(&stored, &got); err != nil {
			return got, fmt.Errorf("apply entry %d: %w", e.Index, err)
		}
	}
	r.rolling.EndEntry()
	r.applied, got.Digest = e.Index, r.rolling.Current()
	return got, nil
}

// perform performs the commands of an entry.
func (r *Replay) perform(e *raft.Log, got *ReplayedEntry) error {
	err := got.decode(e.Data, func(c *ReplayedCommand, command []byte) {
		c.Result = r.machine.Apply(fsm.Env{Index: e.Index, Now: got.Times.Wall, Serving: got.Times.Serving}, command)
		r.rolling.AddResult(&c.Result)
	})
	if err == nil {
		got.Effects = r.machine.Effects()
	}
	return err
}

// replayBodies holds bodies in memory. Bodies that it does not know, from a backup, are zeros.
type replayBodies struct{ kept map[fsm.Ref][]byte }

// replaySegment is the number of the segment of new bodies, which no backup uses.
const replaySegment = 1 << 31

func (b *replayBodies) Append(_ fsm.Owner, body []byte) fsm.Ref {
	if b.kept == nil {
		b.kept = make(map[fsm.Ref][]byte)
	}
	ref := fsm.Ref{Segment: replaySegment, Offset: uint32(len(b.kept)), Size: uint32(len(body))}
	b.kept[ref] = append([]byte(nil), body...)
	return ref
}

func (b *replayBodies) Read(ref fsm.Ref) []byte {
	if body, found := b.kept[ref]; found {
		return body
	}
	return make([]byte, ref.Size)
}

func (b *replayBodies) Release(ref fsm.Ref) {
	if _, found := b.kept[ref]; found {
		b.kept[ref] = nil // its place is not used again
	}
}
