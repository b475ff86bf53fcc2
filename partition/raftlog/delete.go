package raftlog

import "fmt"

const logDeleteEntriesMax = 512 // deleted in one transaction: appends wait for it

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
