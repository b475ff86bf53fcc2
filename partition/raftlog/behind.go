package raftlog

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/hashicorp/raft"
)

// behindBytesMax bounds the entries of a group that are being written behind raft. They are read from the cache, which
// must hold all of them.
const behindBytesMax = entryCacheBytesMax / 2

// behind is what a group knows of the entries that are not on disk yet, although StoreLogs has returned.
//
// Raft sends entries to followers when the leader's StoreLogs has returned. So the leader's StoreLogs returns at once,
// and the leader and its followers write at the same time (Raft dissertation, 10.2.1). Raft then counts the leader as one
// of the quorum too early, which the group makes up for. Nothing that follows from a commit leaves this replica before the entry is
// on its disk: the state machine waits in AwaitStored, and the transport sends no commit index above Stored. A replica
// that no longer leads answers nothing about such entries until they are on disk (GetLog, StoreLogs, DeleteRange).
//
// Only commands are written so. The entry with which a leadership begins is on disk first: with it, entries of older
// terms become committed. So is a configuration, because the next change relies on it.
type behind struct {
	from   uint64        // first index that is not on disk; 0 for none
	writes int           // that have not ended
	bytes  int           // of them
	err    error         // of the first write that failed: the log ends before from
	ended  chan struct{} // closed when a write ends, and replaced
}

var errInstanceEnded = errors.New("the raft instance has ended")

// mayWriteBehind reports whether raft may go on before the entries are on disk.
func (g *Group) mayWriteBehind(entries []*raft.Log) bool {
	bytes := 0
	for _, e := range entries {
		if e.Type != raft.LogCommand {
			return false
		}
		bytes += entryBytes(e)
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.last != 0 && g.last+1 == entries[0].Index && g.behind.bytes+bytes <= behindBytesMax && g.isLeader()
}

// storeBehind begins to write entries, and returns.
func (g *Group) storeBehind(entries []*raft.Log) error {
	w, err := g.newWrite(entries)
	if err != nil {
		return err
	}
	w.behind = g
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.log.enqueue(w); err != nil {
		return fmt.Errorf("append to group %d: %w", g.id, err)
	}
	b := &g.behind
	if b.from == 0 {
		b.from = entries[0].Index
		g.storedBelow.Store(b.from)
	}
	b.writes++
	b.bytes += w.bytes
	g.added(entries)
	return nil
}

// wrote records the end of a write. After a write that failed, none is made.
func (g *Group) wrote(w *logWrite) {
	if w.err != nil {
		g.fails(w.err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.behind
	b.writes--
	b.bytes -= w.bytes
	switch {
	case w.err != nil:
	case b.writes == 0 && b.err == nil:
		b.from = 0
		g.storedBelow.Store(math.MaxUint64)
	default:
		b.from = max(b.from, w.last+1) // two ends can be reported in the wrong order
		g.storedBelow.Store(b.from)
	}
	if b.ended != nil {
		close(b.ended)
		b.ended = nil
	}
}

// fails records the first write that failed, and ends the raft instance. It is called before the write counts as ended, so that the
// call still belongs to this instance.
func (g *Group) fails(err error) {
	g.mu.Lock()
	first := g.behind.err == nil
	if first {
		g.behind.err = err
	}
	g.mu.Unlock()
	if first && g.stopOnFatal(err) != nil && g.lost != nil {
		g.lost()
	}
}

// Stored returns an index up to which all entries are on disk. While none is being written that is the largest number.
func (g *Group) Stored() uint64 { return g.storedBelow.Load() - 1 }

// AwaitStored returns when all entries up to an index are on disk. It ends its goroutine, which must be that of raft's state
// machine, when the raft instance ends before.
func (g *Group) AwaitStored(index uint64) {
	if !g.awaitStored(index) {
		runtime.Goexit()
	}
}

// awaitStored reports whether all entries up to an index are on disk, and not that the raft instance has ended before.
func (g *Group) awaitStored(index uint64) bool {
	for {
		g.mu.Lock()
		stored, ended := g.Stored() >= index, g.behind.wait()
		g.mu.Unlock()
		if stored {
			return true
		}
		if !g.awaitWrite(ended) {
			return false
		}
	}
}

// wait returns a channel that is closed when a write ends. The caller holds the mutex of the group.
func (b *behind) wait() <-chan struct{} {
	if b.ended == nil {
		b.ended = make(chan struct{})
	}
	return b.ended
}

// awaitWrite reports whether a write has ended, and not the raft instance before.
func (g *Group) awaitWrite(ended <-chan struct{}) bool {
	var closed <-chan struct{} // of no instance
	if c := g.instanceClosed.Load(); c != nil {
		closed = *c
	}
	select {
	case <-ended:
		return true
	case <-closed:
		return false
	}
}

// awaitWrites returns when no entry is being written behind raft, or the error of a write that failed.
func (g *Group) awaitWrites() error {
	for {
		g.mu.Lock()
		err, writes, ended := g.behind.err, g.behind.writes, g.behind.wait()
		g.mu.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("append to group %d: %w", g.id, err)
		case writes == 0:
			return nil
		case !g.awaitWrite(ended):
			return errInstanceEnded
		}
	}
}

// EndInstance is called when all goroutines of the raft instance have ended. It waits for their writes; what could not be
// written is no longer part of the log.
func (g *Group) EndInstance() {
	g.SetLeader(nil)
	g.mu.Lock()
	for g.behind.writes > 0 {
		ended := g.behind.wait()
		g.mu.Unlock()
		<-ended
		g.mu.Lock()
	}
	defer g.mu.Unlock()
	g.truncation.pending = false // the next instance reads the end of the log
	if g.behind.err == nil {
		return
	}
	if from := g.behind.from; from != 0 {
		g.cache.dropFrom(from)
		g.last = from - 1
		if g.last < g.first { // it held nothing else
			g.first, g.last = 0, 0
		}
	}
	g.behind.from, g.behind.err = 0, nil
	g.storedBelow.Store(math.MaxUint64)
	g.log.accept(g)
}
