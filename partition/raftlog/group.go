package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// The keys of a group's stable values, as raft calls them. The vote, for which raft uses two keys, is stored
// as one value.
const (
	keyTerm = "CurrentTerm"
	keyVote = "Vote" // 8 bytes term, then the candidate

	keyReplica = "Replica"

	raftKeyVoteTerm = "LastVoteTerm"
	raftKeyVoteCand = "LastVoteCand"
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
	behind          behind
	truncation      truncation
	snapshotEnd     func() uint64 // see SnapshotEnd; nil if unknown
	// fail stops the replica when the content of the log is unknown.
	fail func(error)
	// lost is called when raft takes entries or a configuration for written that could not be written: the raft instance has to end.
	lost func()
	// instanceClosed is closed with the running raft instance; nil while none runs.
	instanceClosed atomic.Pointer[<-chan struct{}]
	leads          atomic.Pointer[func() bool]
	failedAppends  atomic.Uint64
	storedBelow    atomic.Uint64 // behind.from; the largest number for none
	deletes        chan struct{} // has a value during deleteRange: one range after the other, so that a crash leaves no hole
	keptFrom       func() uint64 // see KeepFrom; nil keeps nothing
	keptTo         atomic.Uint64 // last index that raft has compacted and keptFrom has kept; 0 for none
}

func keyIndex(k []byte) uint64 { return binary.BigEndian.Uint64(k) }

func indexKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }

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

// GetLog implements raft.LogStore. The data of the entry must not be changed. If the entry is damaged, the replica
// stops; raft would panic and end the process, so its goroutine ends here, as in putTerm.
//
// A replica that does not lead may be asked for an entry because a leader sends it again: it waits until the entry is on disk,
// or no answer reaches a peer any more.
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
		return raft.ErrLogNotFound
	case cached:
		return nil
	}
	if err := g.log.store.GetLog(g.key(index), out); err != nil {
		if errors.Is(err, disk.ErrDamaged) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return err
	}
	if g.log.journal == nil {
		out.Extensions = nil // raft-boltdb verifies no checksum
	}
	out.Index = index
	return nil
}

// StoreLog implements raft.LogStore.
func (g *Group) StoreLog(entry *raft.Log) error { return g.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore: it returns when the entries are on disk, or before, if they are commands of a leader
// (see behind). It writes many entries, as
// they arrive when a replica catches up, in pieces: the other groups of the member, which have commands to
// confirm and heartbeats to process, wait for one piece and not for the whole. A crash between two pieces
// leaves a prefix of the entries, as an earlier crash would.
func (g *Group) StoreLogs(entries []*raft.Log) error {
	err := g.storeLogs(entries)
	if err != nil {
		g.failedAppends.Add(1)
		g.noteFailedAppend(entries, err)
		return err
	}
	g.noteStored()
	return nil
}

// FailedAppends returns how often StoreLogs has failed.
func (g *Group) FailedAppends() uint64 { return g.failedAppends.Load() }

func (g *Group) storeLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	defer g.log.trimCaches()
	if g.mayWriteBehind(entries) {
		return g.storeBehind(entries)
	}
	if err := g.awaitWrites(); err != nil {
		return err
	}
	if err := g.closeGap(entries[0].Index); err != nil {
		return err
	}
	if err := g.dropPartialAppend(entries[0].Index); err != nil {
		return err
	}
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && (n == 0 || size+len(entries[n].Data) <= logAppendBytesMax) {
			size += len(entries[n].Data)
			n++
		}
		if err := g.storePiece(entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// dropPartialAppend removes the written pieces of an append that failed: raft does not know of them and
// repeats the append from its start.
func (g *Group) dropPartialAppend(next uint64) error {
	g.mu.RLock()
	last := g.last
	g.mu.RUnlock()
	if last < next {
		return nil
	}
	return g.deleteRange(next, last)
}

// storePiece writes entries in one transaction.
func (g *Group) storePiece(entries []*raft.Log) error {
	w, err := g.newWrite(entries)
	if err != nil {
		return err
	}
	if err := g.stopOnFatal(g.log.write(w)); err != nil {
		return fmt.Errorf("append to group %d: %w", g.id, err)
	}
	g.mu.Lock()
	g.added(entries)
	g.mu.Unlock()
	return nil
}

// newWrite returns the write of entries.
func (g *Group) newWrite(entries []*raft.Log) (*logWrite, error) {
	shifted := make([]raft.Log, len(entries))
	w := &logWrite{entries: make([]*raft.Log, len(entries)), last: entries[len(entries)-1].Index}
	for i, e := range entries {
		if e.Index == 0 || e.Index > IndexMax {
			return nil, fmt.Errorf("append to group %d: index %d is out of range", g.id, e.Index)
		}
		shifted[i] = *e
		shifted[i].Index = g.key(e.Index)
		w.entries[i] = &shifted[i]
		w.bytes += entryBytes(e)
	}
	return w, nil
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

// clear deletes all entries of the group.
func (g *Group) clear() error {
	g.mu.RLock()
	first, last := g.first, g.last
	g.mu.RUnlock()
	if last == 0 {
		return nil
	}
	return g.deleteRange(first, last)
}

// KeepFrom sets the function that returns the first index that a leader keeps although raft compacts its log, above the last index
// for none. It must be called before raft runs.
func (g *Group) KeepFrom(from func() uint64) {
	g.keptFrom = from
	g.keptTo.Store(0) // of a former replica
}

// DeleteKept deletes the entries that a leader has kept although raft compacted its log, unless they are still kept. A snapshot has
// them, so they are committed.
func (g *Group) DeleteKept() error {
	to := g.keptTo.Swap(0)
	if to == 0 {
		return nil
	}
	err := g.DeleteRange(1, to)
	if err != nil {
		g.keepTo(to)
	}
	return err
}

// keepTo notes that entries up to this index were kept.
func (g *Group) keepTo(index uint64) {
	for before := g.keptTo.Load(); before < index && !g.keptTo.CompareAndSwap(before, index); {
		before = g.keptTo.Load()
	}
}

// DeleteRange implements raft.LogStore. A leader keeps what KeepFrom says: raft deletes there only when it compacts the log, and
// what a follower deletes at the end contradicts its leader.
func (g *Group) DeleteRange(low, high uint64) error {
	if g.keptFrom != nil && g.isLeader() {
		if from := g.keptFrom(); from <= high {
			g.keepTo(high)
			high = from - 1
		}
	}
	g.mu.RLock()
	suffix := g.last != 0 && low <= g.last && high >= g.last
	g.mu.RUnlock()
	err := g.deleteRange(low, high)
	if suffix {
		g.noteTruncated(err)
	}
	return err
}

// deleteRange deletes in pieces, so that other groups wait for one piece and not
// for the whole. To leave no hole after a crash between two pieces, it deletes a range at the front from its
// start and a range at the end from its end.
func (g *Group) deleteRange(low, high uint64) error {
	g.deletes <- struct{}{}
	defer func() { <-g.deletes }()
	if high > g.Stored() {
		if err := g.awaitWrites(); err != nil {
			return err
		}
	}
	g.mu.Lock()
	if g.last == 0 || low > g.last || high < g.first {
		g.mu.Unlock()
		return nil
	}
	low, high = max(low, g.first), min(high, g.last)
	front := low == g.first
	switch {
	case front && high == g.last:
		g.lastBeforeClear = high
		g.first, g.last = 0, 0
		g.cache.reset()
	case front:
		g.first = high + 1
		g.cache.dropUpTo(high)
	case high == g.last:
		g.last = low - 1
		g.cache.dropFrom(low)
	default:
		g.mu.Unlock()
		return fmt.Errorf("delete %d to %d of group %d: a range inside the log", low, high, g.id)
	}
	g.mu.Unlock()
	for low <= high {
		w := &logWrite{min: low, max: high}
		if high-low >= logDeleteEntriesMax {
			if front {
				w.max = low + logDeleteEntriesMax - 1
			} else {
				w.min = high - logDeleteEntriesMax + 1
			}
		}
		if front {
			low = w.max + 1
		} else {
			high = w.min - 1
		}
		w.min, w.max = g.key(w.min), g.key(w.max)
		if err := g.stopOnFatal(g.log.write(w)); err != nil {
			g.revertDelete(w.min&IndexMax, w.max&IndexMax, front)
			return fmt.Errorf("delete from group %d: %w", g.id, err)
		}
	}
	return nil
}

// revertDelete restores the range that a failed deletion has left. Otherwise raft would write behind entries
// that it takes for deleted, and a restart would find them.
func (g *Group) revertDelete(low, high uint64, front bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !front:
		g.last = high
	case g.last == 0: // all entries were to be deleted
		g.first, g.last = low, g.lastBeforeClear
	default:
		g.first = low
	}
}

// put writes a stable value of the group; an empty value means that it is not set.
func (g *Group) put(key string, value []byte) error {
	return g.stopOnFatal(g.log.transact(func() error { return g.log.store.Set(fmt.Appendf(nil, "%d/%s", g.id, key), value) }))
}

func (g *Group) get(key string) ([]byte, error) {
	v, err := g.log.store.Get(fmt.Appendf(nil, "%d/%s", g.id, key))
	if err == nil && len(v) == 0 {
		err = raftboltdb.ErrKeyNotFound
	}
	return v, err
}

// isNotFound reports whether a stable value has never been written.
func isNotFound(err error) bool { return errors.Is(err, raftboltdb.ErrKeyNotFound) }

// Set implements raft.StableStore. Raft writes the term of a vote and then its candidate, as two values. A
// crash between them would leave the new term with the candidate of an older vote, and that candidate would
// then get the vote of this term too. So the term is held back until the candidate follows, and both are
// written as one value.
func (g *Group) Set(key, value []byte) error {
	if string(key) != raftKeyVoteCand {
		return g.put(string(key), value)
	}
	g.mu.Lock()
	term, pending := g.voteTerm, g.votePending
	g.votePending = false
	g.mu.Unlock()
	if !pending {
		return fmt.Errorf("vote of group %d: candidate without a term", g.id)
	}
	return g.put(keyVote, append(binary.BigEndian.AppendUint64(nil, term), value...))
}

// Get implements raft.StableStore.
func (g *Group) Get(key []byte) ([]byte, error) {
	if string(key) != raftKeyVoteCand {
		return g.get(string(key))
	}
	_, cand, err := g.vote()
	return cand, err
}

// SetUint64 implements raft.StableStore.
func (g *Group) SetUint64(key []byte, value uint64) error {
	if string(key) == raftKeyVoteTerm {
		g.mu.Lock()
		g.voteTerm, g.votePending = value, true
		g.mu.Unlock()
		return nil
	}
	if string(key) == keyTerm {
		return g.putTerm(value)
	}
	return g.put(string(key), binary.BigEndian.AppendUint64(nil, value))
}

// putTerm writes the term. Raft panics and ends the process when that fails, so it does not fail while an
// instance runs: on a full disk raft's main goroutine waits here for space, and the replica answers no
// requests meanwhile; when the replica stops, the goroutine ends here. A term that is stored already is not
// written again, which saves a sync per open.
func (g *Group) putTerm(term uint64) error {
	g.mu.RLock()
	known := g.term
	g.mu.RUnlock()
	if term == known && term != 0 {
		return nil
	}
	for {
		err := g.put(keyTerm, binary.BigEndian.AppendUint64(nil, term))
		if err == nil {
			g.mu.Lock()
			g.term = term
			g.mu.Unlock()
			return nil
		}
		ended := g.instanceClosed.Load()
		if ended == nil {
			return err
		}
		if !disk.IsRetriableWrite(err) {
			runtime.Goexit() // stopOnFatal has stopped the replica
		}
		select {
		case <-time.After(disk.RetryInterval):
		case <-*ended:
			runtime.Goexit()
		}
	}
}

// GetUint64 implements raft.StableStore.
func (g *Group) GetUint64(key []byte) (uint64, error) {
	if string(key) == raftKeyVoteTerm {
		term, _, err := g.vote()
		return term, err
	}
	v, err := g.get(string(key))
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("value %s of group %d has %d bytes", key, g.id, len(v))
	}
	if string(key) == keyTerm {
		g.mu.Lock()
		g.term = binary.BigEndian.Uint64(v)
		g.mu.Unlock()
	}
	return binary.BigEndian.Uint64(v), nil
}

func (g *Group) vote() (term uint64, cand []byte, err error) {
	v, err := g.get(keyVote)
	if err != nil {
		return 0, nil, err
	}
	if len(v) < 8 {
		return 0, nil, fmt.Errorf("vote of group %d has %d bytes", g.id, len(v))
	}
	return binary.BigEndian.Uint64(v), v[8:], nil
}

// VoteTerm returns the term of the last vote of the replica.
func (g *Group) VoteTerm() (uint64, error) { return g.GetUint64([]byte(raftKeyVoteTerm)) }

// SetTerm writes the first term of a group that begins with a backup.
func (g *Group) SetTerm(term uint64) error { return g.putTerm(term) }

// Owner returns the replica whose entries the log holds for the group, "" for none.
func (g *Group) Owner() (string, error) {
	v, err := g.get(keyReplica)
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read owner of group %d: %w", g.id, err)
	}
	return string(v), nil
}

// SetOwner claims the log for a replica, which has no entries in it.
func (g *Group) SetOwner(replica string) error {
	if err := g.forgetDamage(); err != nil {
		return err
	}
	return g.put(keyReplica, []byte(replica))
}

// forgetDamage deletes all entries of the group if some of them cannot be read.
func (g *Group) forgetDamage() error {
	j := g.log.journal
	if j == nil || j.Damage(uint32(g.id)) == nil {
		return nil
	}
	if err := g.stopOnFatal(g.log.transact(func() error { return j.Forget(uint32(g.id)) })); err != nil {
		return fmt.Errorf("delete the damaged log of group %d: %w", g.id, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.first, g.last = 0, 0
	g.cache.reset()
	return nil
}

// OnFailure sets the functions that stop the replica when the content of the log is unknown, and that end the raft instance
// when it takes entries or a configuration for written that could not be written. It is called before the log is used.
func (g *Group) OnFailure(fail func(error), lost func()) { g.fail, g.lost = fail, lost }

// SetInstance tells the log which raft instance uses it: closed is closed with the instance; nil while
// none runs.
func (g *Group) SetInstance(closed <-chan struct{}) {
	if closed == nil {
		g.instanceClosed.Store(nil)
		return
	}
	g.instanceClosed.Store(&closed)
}

// Reconcile checks that the log continues where the newest snapshot ends, at an index of a term, and drops a log that contradicts
// the snapshot: entries of another term at the index of the snapshot were never committed, nor was anything
// behind them. If they stayed, raft would ask for snapshots without end.
//
// It returns an error that wraps ErrDamaged if entries of the group cannot be read.
func (g *Group) Reconcile(index, term uint64) error {
	if g.log.journal != nil {
		if err := g.log.journal.Damage(uint32(g.id)); err != nil {
			return fmt.Errorf("log of group %d: %w: %w", g.id, ErrDamaged, err)
		}
	}
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	if first > index+1 {
		return fmt.Errorf("log of group %d begins at %d and the newest snapshot ends at %d: %w", g.id, first, index, ErrDamaged)
	}
	if index == 0 || index < first || last < index {
		return nil // no entry at the index of the snapshot that could contradict it
	}
	var e raft.Log
	if err := g.read(index, &e); err != nil {
		return fmt.Errorf("read log of group %d at %d: %w", g.id, index, err)
	}
	if e.Term == term {
		return nil
	}
	return g.clear()
}
