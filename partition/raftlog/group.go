package raftlog

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// Group is the part of one group in the shared log: its raft.LogStore and raft.StableStore. It caches the
// first and last index and the newest entries, since raft reads each entry again for the machine and once per
// follower.
type Group struct {
	log *Log
	id  fsm.PartitionID

	mu              sync.RWMutex
	first           uint64
	last            uint64
	lastBeforeClear uint64 // last, before all entries were deleted
	cache           entryCache
	appendedAt      atomic.Int64 // Log.appended after the last append
	voteTerm        uint64       // set by raft, written together with the candidate
	votePending     bool
	term            uint64 // as written last; 0: unknown
	waitsForTerm    atomic.Bool
	behind          behind
	truncation      truncation
	snapshotEnd     func() (index, term uint64) // see SnapshotEnd; nil if unknown
	// fail stops the replica when the content of the log is unknown.
	fail func(error)
	// lost is called when raft takes entries or a configuration for written that could not be written: the raft instance has to end.
	lost func()
	// outdated is called in a goroutine of its own; see OnFailure.
	outdated func(term uint64)
	// instanceClosed is closed with the running raft instance; nil while none runs.
	instanceClosed atomic.Pointer[<-chan struct{}]
	leads          atomic.Pointer[func() bool]
	failedAppends  atomic.Uint64
	storedBelow    atomic.Uint64 // behind.from; the largest number for none
	deletes        chan struct{} // has a value during deleteRange: one range after the other, so that a crash leaves no hole
	keptFrom       func() uint64 // see KeepFrom; nil keeps nothing
	keptTo         atomic.Uint64 // last index that raft has compacted and keptFrom has kept; 0 for none
}

func (g *Group) key(index uint64) uint64 {
	return uint64(g.id)<<logIndexBits | index
}

// FirstIndex implements raft.LogStore.
func (g *Group) FirstIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.first, nil
}

// LastIndex implements raft.LogStore.
func (g *Group) LastIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.last, nil
}

// GetLog implements raft.LogStore. The data of the entry must not be changed. If the entry is damaged or cannot be read, the replica
// stops; raft would panic and end the process, so its goroutine ends here, as in putTerm.
//
// A replica that does not lead may be asked for an entry because a leader sends it again: it waits until the entry is on disk,
// or no answer reaches a peer any more.
//
// A follower also gets the term of the last entry in the newest snapshot, if the log begins behind it, as an entry without content. Raft
// 1.7.3 (appendEntries) asks for it when the leader sends the first entry behind the snapshot, unless the log is empty: without an answer
// the leader would send the snapshot again without end. A leader must not get it, because it would send it.
func (g *Group) GetLog(index uint64, out *raft.Log) error {
	if index > g.Stored() && !g.isLeader() {
		g.awaitStored(index)
	}
	err := g.read(index, out)
	if errors.Is(err, ErrDamaged) && g.fail != nil && g.instanceClosed.Load() != nil {
		g.fail(err)
		runtime.Goexit()
	}
	return err
}

func (g *Group) read(index uint64, out *raft.Log) error {
	g.mu.RLock()
	held := index >= g.first && index <= g.last && g.last != 0
	cached := g.cache.get(index, out)
	g.mu.RUnlock()
	switch {
	case !held:
		if g.snapshotEnd != nil && !g.isLeader() {
			if end, term := g.snapshotEnd(); end == index && end != 0 {
				*out = raft.Log{Index: index, Term: term, Type: raft.LogNoop}
				return nil
			}
		}
		return raft.ErrLogNotFound
	case cached:
		return nil
	}
	err := g.log.store.GetLog(g.key(index), out)
	if g.log.journal == nil {
		if disk.IsUnreadable(err) { // such an error may pass, as in disk.ReadAt
			err = g.log.store.GetLog(g.key(index), out)
		}
		err = asBoltDamage(err)
		out.Extensions = nil // raft-boltdb verifies no checksum
	}
	out.Index = index
	if errors.Is(err, disk.ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// asBoltDamage makes damage of the error of a read from bbolt, unless the entry is missing or the file is closed.
func asBoltDamage(err error) error {
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, bolterrors.ErrDatabaseNotOpen) || errors.Is(err, fs.ErrClosed) {
		return err
	}
	return disk.AsDamage(err)
}

// OnFailure sets the functions that stop the replica when the content of the log is unknown, and that end the raft instance
// when it takes entries or a configuration for written that could not be written. outdated gets the term that raft waits to write,
// when there is no space for it: another replica campaigns in it. It is called before the log is used.
func (g *Group) OnFailure(fail func(error), lost func(), outdated func(term uint64)) {
	g.fail, g.lost, g.outdated = fail, lost, outdated
}

// SetInstance tells the log which raft instance uses it: closed is closed with the instance; nil while
// none runs.
func (g *Group) SetInstance(closed <-chan struct{}) {
	if closed == nil {
		g.instanceClosed.Store(nil)
		return
	}
	g.instanceClosed.Store(&closed)
}

// SetLeader tells the log how to find out whether the raft instance leads, which raft's main goroutine asks; nil if it
// does not run.
func (g *Group) SetLeader(leads func() bool) {
	if leads == nil {
		g.leads.Store(nil)
		return
	}
	g.leads.Store(&leads)
}

func (g *Group) isLeader() bool {
	leads := g.leads.Load()
	return leads != nil && (*leads)()
}

// added makes entries part of the log. The caller holds mu.
func (g *Group) added(entries []*raft.Log) {
	if g.first == 0 {
		g.first = entries[0].Index
	}
	g.last = entries[len(entries)-1].Index
	bytes := 0
	for _, e := range entries {
		g.cache.add(e)
		bytes += entryBytes(e)
	}
	g.appendedAt.Store(g.log.appended.Add(int64(bytes)))
}

// stopOnFatal stops the replica after any error other than a full disk.
func (g *Group) stopOnFatal(err error) error {
	if err != nil && !disk.IsRetriableWrite(err) && g.fail != nil {
		g.fail(err)
	}
	return err
}
