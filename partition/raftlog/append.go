package raftlog

import (
	"fmt"

	"github.com/hashicorp/raft"
)

const logAppendBytesMax = 1 << 20 // of one group in one transaction, unless one entry is larger: other groups wait for it

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
