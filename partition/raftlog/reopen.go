package raftlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// errGap means that an append would leave a hole in the log.
var errGap = errors.New("the log ends before the entry that precedes the append")

// truncation records what the raft instance did to the end of the log. Raft 1.7.3 does not update its last index when it deletes a
// suffix: if the append that follows fails, raft takes an entry for the last one that the log does not hold.
type truncation struct {
	pending  bool // a suffix was deleted, and nothing was stored since
	gapFound bool // an instance was ended by errGap, and nothing was stored since
}

// SnapshotEnd sets the function that returns the index and the term at which the newest snapshot ends. It must be called before raft runs.
// Without it the log drops all entries before a gap.
func (g *Group) SnapshotEnd(end func() (index, term uint64)) { g.snapshotEnd = end }

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

// Covers reports whether the log has the entries from first to last, and that last is of this term.
func (g *Group) Covers(first, last, term uint64) bool {
	from, _ := g.FirstIndex()
	to, _ := g.LastIndex()
	var e raft.Log
	return from != 0 && from <= first && last <= to && from <= last && g.read(last, &e) == nil && e.Term == term
}

// noteStored records that an append succeeded: raft now knows the last index of the log.
func (g *Group) noteStored() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.truncation = truncation{}
}

// noteTruncated records the result of a deletion by raft. Raft keeps its last index when the deletion of a suffix fails,
// which may have deleted a part.
func (g *Group) noteTruncated(err error) {
	if err != nil {
		g.endInstanceFor(err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.truncation.pending = true
}

// noteFailedAppend ends the raft instance if the failed append leaves it with a state that the log does not have. After any other
// append the state of raft is right, and raft repeats the append: reopening reads all entries behind the snapshot, which is too much
// work for each attempt on a full disk.
func (g *Group) noteFailedAppend(entries []*raft.Log, err error) {
	g.mu.RLock()
	truncated := g.truncation.pending
	g.mu.RUnlock()
	if truncated || errors.Is(err, errGap) || g.isLeader() && slices.ContainsFunc(entries, isConfiguration) {
		g.endInstanceFor(err)
	}
}

// isConfiguration reports whether an entry holds a configuration. A leader applies it even if it could not be stored (raft 1.7.3,
// appendConfigurationEntry).
func isConfiguration(e *raft.Log) bool { return e.Type == raft.LogConfiguration }

// endInstanceFor refuses all further appends of the raft instance and ends it, once.
func (g *Group) endInstanceFor(err error) {
	g.mu.Lock()
	first := g.lost != nil && g.behind.err == nil && !errors.Is(err, errInstanceEnded)
	if first {
		g.behind.err = err
	}
	g.mu.Unlock()
	if first {
		g.lost()
	}
}

// closeGap drops the entries before a gap if a snapshot covers them and the gap: raft continues behind a snapshot from the leader,
// and the log must have no holes. A gap that no snapshot covers means that raft takes entries for stored that the log does not hold:
// the instance ends, and if the gap recurs, the replica halts.
func (g *Group) closeGap(next uint64) error {
	g.mu.RLock()
	last := g.last
	g.mu.RUnlock()
	if last == 0 || next <= last+1 {
		return nil
	}
	end := next - 1
	if g.snapshotEnd != nil {
		end, _ = g.snapshotEnd()
	}
	if end >= next-1 {
		return g.clear()
	}
	g.mu.Lock()
	recurs := g.truncation.gapFound
	g.truncation.gapFound = true
	g.mu.Unlock()
	err := fmt.Errorf("append %d to group %d, whose log ends at %d: %w", next, g.id, last, errGap)
	if recurs && g.fail != nil {
		g.fail(err)
	}
	return err
}
