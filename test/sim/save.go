package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/savedlog"
)

// keyIndexBits are the bits of a key of a log that are the index; those above are the group.
const keyIndexBits = 40

// recorder keeps every entry that the members of one cluster have stored, also those that they deleted since.
type recorder struct {
	events *digest

	mu     sync.Mutex
	stored map[storedKey]*storedEntry
	start  map[fsm.PartitionID][]byte // copies that the cluster was restored from; nil: it was not
}

type storedKey struct{ key, term uint64 }

type storedEntry struct {
	raft.Log

	members []string // that stored it
}

func newRecorder(events *digest, start map[fsm.PartitionID][]byte) *recorder {
	return &recorder{events: events, stored: make(map[storedKey]*storedEntry), start: start}
}

// open returns a raftlog.OpenStore that records what a member stores.
func (r *recorder) open(member string, open raftlog.OpenStore) raftlog.OpenStore {
	return func(path string) (raftlog.Store, map[fsm.PartitionID]raftlog.IndexRange, error) {
		store, ranges, err := open(path)
		return &recordedStore{store, r, member}, ranges, err
	}
}

// recordedStore is the store of one process.
type recordedStore struct {
	raftlog.Store

	recorder *recorder
	member   string
}

// StoreLogs implements raftlog.Store.
func (s *recordedStore) StoreLogs(entries []*raft.Log) error {
	err := s.Store.StoreLogs(entries)
	if err == nil {
		s.recorder.add(s.member, entries)
	}
	return err
}

func (r *recorder) add(member string, entries []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		r.events.stored(member, e)
		at := storedKey{e.Index, e.Term}
		if r.stored[at] == nil {
			kept := *e
			kept.Data = slices.Clone(e.Data)
			r.stored[at] = &storedEntry{Log: kept}
		}
		if known := r.stored[at]; !slices.Contains(known.members, member) {
			known.members = append(known.members, member)
		}
	}
}

// save writes the log of each group into a folder, and the copy that it began with.
func (r *recorder) save(folder string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	groups := make(map[fsm.PartitionID][]savedlog.Entry)
	for at, e := range r.stored {
		id := fsm.PartitionID(at.key >> keyIndexBits)
		slices.Sort(e.members)
		groups[id] = append(groups[id], savedlog.Entry{
			Index: at.key & (1<<keyIndexBits - 1), Term: e.Term, Type: uint8(e.Type), Data: e.Data, Replicas: e.members,
		})
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	for id, entries := range groups {
		slices.SortFunc(entries, func(a, b savedlog.Entry) int {
			return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Term, b.Term))
		})
		path := filepath.Join(folder, fmt.Sprintf("group-%d", id))
		file, err := os.Create(path + ".log")
		if err != nil {
			return err
		}
		if err := cmp.Or(savedlog.Write(file, id, entries), file.Close()); err != nil {
			return err
		}
		if start := r.start[id]; start != nil {
			if err := os.WriteFile(path+".copy", start, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
