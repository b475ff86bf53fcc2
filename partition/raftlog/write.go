package raftlog

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/disk"
)

const logCommitBytesMax = 8 << 20 // appended in one transaction

// logWrite is one append or one deletion that waits for its transaction.
type logWrite struct {
	entries []*raft.Log // keys already shifted
	bytes   int
	min     uint64 // deletion, when entries is nil
	max     uint64
	last    uint64 // index of the last entry
	err     error
	// turn receives true when this write must run the next transaction, false when another writer has done
	// it. It is nil if nobody waits for the write.
	turn chan bool
	// behind is the group to which the end of a write is reported for which nobody waits.
	behind *Group
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

// write executes w, in a transaction of its own or with other writes.
func (l *Log) write(w *logWrite) error {
	w.turn = make(chan bool, 1)
	l.mu.Lock()
	l.waiting = append(l.waiting, w)
	if l.writing {
		l.mu.Unlock()
		if lead := <-w.turn; !lead {
			return w.err
		}
		l.mu.Lock()
	}
	l.writing = true
	l.mu.Unlock()
	l.commitNext(w)
	return w.err
}

// enqueue queues a write for which nobody waits, or returns the error of an earlier one of its group.
func (l *Log) enqueue(w *logWrite) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failed[w.behind]; err != nil {
		return err
	}
	l.waiting = append(l.waiting, w)
	if !l.writing {
		l.writing = true
		go l.writeBehind()
	}
	return nil
}

// accept permits a group to write again after a write failed for which nobody waited.
func (l *Log) accept(g *Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failed, g)
}

// writeBehind runs transactions until a writer that waits for one can run the next.
func (l *Log) writeBehind() {
	for l.commitNext(nil) {
	}
}

// commitNext runs the next transaction, which has the write of the caller, if that waits for one. It reports whether a caller
// that waits for none has to run one more.
func (l *Log) commitNext(own *logWrite) (again bool) {
	l.mu.Lock()
	batch := l.nextBatch()
	l.mu.Unlock()
	err := l.commit(batch)
	l.mu.Lock()
	if err != nil {
		batch = append(batch, l.dropBehind(batch, err)...)
	}
	switch {
	case len(l.waiting) == 0:
		l.writing = false
	case l.waiting[0].turn != nil:
		l.waiting[0].turn <- true
	case own == nil:
		again = true
	default:
		go l.writeBehind()
	}
	l.mu.Unlock()
	for _, w := range batch {
		w.err = err
		switch {
		case w.behind != nil:
			w.behind.wrote(w)
		case w != own:
			w.turn <- false
		}
	}
	return again
}

// dropBehind removes the queued writes of groups that had a write in the batch for which nobody waits, because a log has no
// gaps; these groups take no more. Called with mu held.
func (l *Log) dropBehind(batch []*logWrite, err error) (dropped []*logWrite) {
	for _, w := range batch {
		if w.behind != nil {
			l.failed[w.behind] = err
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w *logWrite) bool {
		drop := w.behind != nil && l.failed[w.behind] != nil
		if drop {
			dropped = append(dropped, w)
		}
		return drop
	})
	return dropped
}

// nextBatch removes the writes of the next transaction from the queue: appends together, a deletion alone.
// Called with mu held.
func (l *Log) nextBatch() []*logWrite {
	n, size := 0, 0
	for n < len(l.waiting) {
		w := l.waiting[n]
		if n > 0 && (w.entries == nil || size+w.bytes > logCommitBytesMax) {
			break
		}
		n++
		size += w.bytes
		if w.entries == nil {
			break
		}
	}
	batch := append([]*logWrite(nil), l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return batch
}

// commit runs one transaction.
func (l *Log) commit(batch []*logWrite) error {
	start := time.Now()
	l.started.Store(start.UnixNano())
	defer func() {
		l.started.Store(0)
		took := time.Since(start)
		l.commitTimes.Observe(took)
		l.latencies.add(start.Add(took), took)
		if int64(took) > l.slowest.Load() {
			l.slowest.Store(int64(took))
		}
	}()
	l.commits.Add(1)
	if batch[0].entries == nil {
		return l.transact(func() error { return l.store.DeleteRange(batch[0].min, batch[0].max) })
	}
	// A leader that does not wait can have several writes in a batch, and the journal takes the entries of a group one after the other.
	slices.SortStableFunc(batch, func(a, b *logWrite) int {
		return cmp.Compare(a.entries[0].Index>>logIndexBits, b.entries[0].Index>>logIndexBits)
	})
	entries := batch[0].entries
	size := batch[0].bytes
	for _, w := range batch[1:] {
		entries = append(entries, w.entries...)
		size += w.bytes
	}
	l.entries.Add(uint64(len(entries)))
	l.bytes.Add(uint64(size))
	return l.transact(func() error { return l.store.StoreLogs(entries) })
}

// transact runs one transaction, and once more if deleting the ballast has freed space. After any error other
// than a full disk the content of the file is unknown: the log accepts no further writes, and all groups
// stop.
func (l *Log) transact(run func() error) error {
	if err := l.writeErr.Load(); err != nil {
		return *err
	}
	err := run()
	if disk.IsRetriableWrite(err) && l.diskSpace.Relieve(err) {
		err = run()
	}
	if err != nil && !disk.IsRetriableWrite(err) {
		err = fmt.Errorf("log %s accepts no more writes: %w", l.path, err)
		l.writeErr.CompareAndSwap(nil, &err)
	}
	return err
}
