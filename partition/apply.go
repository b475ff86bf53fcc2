package partition

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/skip"
	"github.com/peeklock/peeklock/partition/snapshots"
)

// machineFSM is the group as raft sees it. It implements raft.BatchingFSM but not raft.ConfigurationStore, so
// configurations arrive as entries of a batch, in order.
type machineFSM Group

var _ raft.BatchingFSM = (*machineFSM)(nil)

// appliedEntry is an entry that this replica has proposed, with the results of its commands.
type appliedEntry struct {
	batch   *batch
	results []fsm.Result
	ours    bool // its callers still wait: they were not answered Unknown meanwhile
}

// Apply implements raft.FSM.
func (f *machineFSM) Apply(entry *raft.Log) any { return f.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch implements raft.BatchingFSM. The results are nil because answers do not go through raft's
// futures.
func (f *machineFSM) ApplyBatch(entries []*raft.Log) []any {
	g := (*Group)(f)
	nothing := make([]any, len(entries))
	g.log.AwaitStored(entries[len(entries)-1].Index)
	if g.halted() != nil {
		return nothing
	}
	for len(entries) > 0 {
		began := time.Now()
		done, effects, n, err := g.apply(entries)
		if err != nil {
			g.halt(err)
			g.proposer.abandon(done)
			return nothing
		}
		entries = entries[n:]
		g.installsSinceApply.Store(0)
		g.proposer.settle(done, effects, began)
		g.appliedWaiters.notify(g.applied.Load())
		if g.cfg.Applied != nil {
			g.cfg.Applied()
		}
	}
	return nothing
}

// lockStepsMax is the number of machine steps after which apply releases the lock between two entries of a
// batch, so that readers get it: some milliseconds of work. Cheap entries are applied under one lock.
const lockStepsMax = 4 << 20

// stepCounter is implemented by machines that count the steps of their entries (those of message partitions).
type stepCounter interface {
	Steps() uint64    // of the newest entry
	Exceeded() uint64 // evaluations of rules that exceeded their budget
}

// poisonHint tells what to do about an entry on which the machine panics.
const poisonHint = `if every replica of the partition stops at this entry, see "An entry stops every replica" in the runbook`

// apply applies entries until lockStepsMax is reached and writes their bodies in one flush; n is the number
// of entries applied. A panic becomes an error, and the replica stops.
func (g *Group) apply(entries []*raft.Log) (done []appliedEntry, effects []fsm.Effect, n int, err error) {
	if err := g.openSegment(entries); err != nil {
		return nil, nil, 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var e *raft.Log // that is being applied
	defer func() {
		r := recover()
		failure, ok := r.(bodystore.Failure)
		switch {
		case r == nil:
		case ok:
			err = failure.Err
		case e == nil:
			err = fmt.Errorf("after entry %d was applied: %v\n%s", g.applied.Load(), r, debug.Stack())
		default:
			err = fmt.Errorf("apply entry %d with checksum %08x: %v (%s)\n%s", e.Index, skip.Checksum(e.Data), r, poisonHint, debug.Stack())
		}
	}()
	counts, _ := g.machine.(stepCounter)
	for steps := uint64(0); n < len(entries) && steps < lockStepsMax; n++ {
		e = entries[n]
		if e.Index <= g.applied.Load() {
			continue // replayed by an instance that was reopened
		}
		if len(g.digestWaits) > 0 {
			g.captureDigests(e.Index)
		}
		g.rolling.Checkpoint(g.applied.Load(), e.Index)
		g.rolling.BeginEntry(e)
		switch e.Type {
		case raft.LogConfiguration:
			g.applyConfiguration(e.Index, raft.DecodeConfiguration(e.Data).Servers)
		case raft.LogCommand:
			a, err := g.applyEntry(e)
			if a.batch != nil {
				done = append(done, a)
			}
			if err != nil {
				return done, nil, n, fmt.Errorf("entry %d: %w", e.Index, err)
			}
			if counts != nil {
				steps += counts.Steps()
			}
		}
		g.rolling.EndEntry()
		g.applied.Store(e.Index)
		g.snapshotter.countEntry(e.Index, len(e.Data))
	}
	e = nil
	if err := g.bodies.FlushFull(); err != nil {
		return done, nil, n, err
	}
	if counts != nil {
		g.counts.exceeded.Store(counts.Exceeded())
	}
	g.publishTimes()
	effects = g.machine.Effects()
	return done, effects, n, g.readCached(done)
}

// openSegment creates the first segment for the bodies of new messages. On a full disk, or without a file descriptor, it waits,
// without mu: whoever reads the machine would wait with it. What other commands store then, such as patches and session states, is
// little and stays in memory.
func (g *Group) openSegment(entries []*raft.Log) error {
	if g.bodies.HasSegment() || !slices.ContainsFunc(entries, bringsMessages) {
		return nil
	}
	for {
		g.mu.Lock()
		err := g.bodies.OpenSegment()
		g.mu.Unlock()
		if !disk.IsShortage(err) || !g.bodies.WaitForSpace() {
			return err
		}
	}
}

// bringsMessages reports whether an entry has a command with new messages.
func bringsMessages(e *raft.Log) bool {
	if e.Type != raft.LogCommand {
		return false
	}
	head, err := decodeEntry(e.Data)
	if err != nil {
		return false // applyEntry reports it
	}
	for i := range head.count {
		command, err := head.next(i == head.count-1)
		if err != nil {
			return false
		}
		if info, _ := fsm.PeekCommand(command); info.Kind.Brings() {
			return true
		}
	}
	return false
}

// applyEntry applies one entry.
func (g *Group) applyEntry(e *raft.Log) (appliedEntry, error) {
	head, err := decodeEntry(e.Data)
	if err != nil {
		return appliedEntry{}, err
	}
	a := appliedEntry{batch: g.proposer.findInFlight(head.batch, head.count)}
	if a.batch != nil {
		a.results = make([]fsm.Result, 0, head.count)
	}
	g.counts.entries.Add(1)
	g.counts.commands.Add(uint64(head.count))
	env := fsm.Env{Index: e.Index, Now: head.times.Wall, Serving: head.times.Serving}
	g.appliedAt.Store(int64(g.cfg.Monotonic()))
	perform := g.machine.Apply
	if len(g.skipped) > 0 {
		skips, err := g.skipped.Has(e)
		if err != nil {
			return a, err
		}
		if skips {
			perform = g.machine.Skip
			g.cfg.Logger.Warn("skipped the commands of an entry that an operator has marked", "index", e.Index, "commands", head.count)
		}
	}
	for i := range head.count {
		command, err := head.next(i == head.count-1)
		if err != nil {
			return a, err
		}
		result := perform(env, command)
		g.rolling.AddResult(&result)
		if a.batch != nil {
			a.results = append(a.results, result)
		}
	}
	return a, nil
}

// publishTimes stores the times of the machine and of its next pulse, and its format level. The caller holds
// mu.
func (g *Group) publishTimes() {
	times, due := g.machine.Times(), g.machine.NextDeadline()
	g.wall.Store(int64(times.Wall))
	g.serving.Store(int64(times.Serving))
	g.deadlineWall.Store(int64(due.Wall))
	g.deadlineServing.Store(int64(due.Serving))
	g.level.Store(g.machine.FormatLevel())
}

// readCached fills in the deliveries whose bodies are still in memory. For the body reader it writes what is
// only there, and pins the segments of the others. The caller holds mu.
func (g *Group) readCached(done []appliedEntry) error {
	for _, a := range done {
		for i := range a.results {
			ds := a.results[i].Deliveries
			if len(ds) == 0 || g.bodies.FillFromTail(ds) {
				continue
			}
			if err := g.bodies.Flush(); err != nil {
				return err
			}
			g.bodies.Pin()
			a.batch.items[i].needsRead = true
		}
	}
	return nil
}

// settle answers the callers of applied entries and updates the wait queues. began is the start of their
// apply.
func (p *proposer) settle(done []appliedEntry, effects []fsm.Effect, began time.Time) {
	if len(done) == 0 && len(effects) == 0 && p.inFlightCount.Load() == 0 && !p.oversleepsPulse() {
		return
	}
	var over []*waiter
	var others []fsm.Effect
	var slow []slowEntry
	now := time.Now()
	p.mu.Lock()
	for i, a := range done {
		if p.removeInFlight(a.batch.id) == nil {
			continue // leadership was lost meanwhile, and the callers were answered Unknown
		}
		done[i].ours = true
		times := entryTimes{a.batch.waitingSince, a.batch.composedAt, a.batch.takenAt, began, now}
		stages := times.stages()
		p.g.counts.proposals.Observe(now.Sub(a.batch.composedAt))
		p.g.counts.stages.add(stages)
		p.transferStuckSince = time.Time{}
		if after, took := p.g.cfg.SlowAfter, now.Sub(a.batch.waitingSince); after > 0 && took >= after {
			slow = append(slow, slowEntry{took, stages, len(a.batch.items)})
		}
		over = append(over, p.updateWaitQueues(a.batch, a.results)...)
	}
	for _, e := range effects {
		switch e.Kind {
		case fsm.EffectReady, fsm.EffectSession, fsm.EffectSessionLost:
			if l := p.observeEffect(e); l != nil {
				p.markReady(l)
			}
			continue
		case fsm.EffectIdle:
			p.invalidateAll(e.Address.Entity)
		case fsm.EffectForward, fsm.EffectIdleShard: // concern no waiter of this replica
		}
		others = append(others, e)
	}
	leads := p.leading
	for _, a := range done {
		if a.ours {
			p.markAllReady(a.batch)
		}
	}
	wake := p.leading && (p.submissions.Len() > 0 || p.hasLocksToPropose() || p.oversleepsPulseLocked())
	p.mu.Unlock()
	if wake {
		p.notify()
	}
	for _, w := range over {
		w.answer(Answer{Outcome: Done, Result: fsm.Result{Code: w.refusal}})
	}
	if leads && p.g.cfg.Effect != nil {
		for _, e := range others {
			p.g.cfg.Effect(e)
		}
	}
	for _, a := range done {
		p.answer(a)
	}
	for _, e := range slow {
		p.g.cfg.logSlowEntry(e)
	}
}

// answer calls the callers of one entry back.
func (p *proposer) answer(a appliedEntry) {
	for i := range a.batch.items {
		it := &a.batch.items[i]
		var end func(Answer)
		if a.ours {
			end = it.callback(a.results[i])
		}
		switch {
		case it.needsRead:
			p.g.bodyReader.push(a.results[i], end)
		case end != nil:
			end(Answer{Outcome: Done, Result: a.results[i]})
		}
	}
}

// abandon answers the callers of entries during which the replica stopped.
func (p *proposer) abandon(done []appliedEntry) {
	for _, a := range done {
		p.mu.Lock()
		found := p.removeInFlight(a.batch.id) != nil
		p.mu.Unlock()
		if found {
			a.batch.fail(Unknown)
		}
	}
}

// Snapshot implements raft.FSM: it freezes the state.
func (f *machineFSM) Snapshot() (raft.FSMSnapshot, error) {
	frozen, err := (*Group)(f).freeze()
	if err != nil {
		return nil, err // not a nil *frozenState
	}
	return frozen, nil
}

// freeze freezes the state. The caller releases it.
func (g *Group) freeze() (*snapshots.Frozen, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list, err := g.freezeBodies()
	if err != nil {
		return nil, err
	}
	written := g.snapshotter.mark()
	return &snapshots.Frozen{
		Bodies:   g.bodies,
		Digest:   g.rolling.State(),
		Image:    g.machine.Image(),
		Applied:  g.applied.Load(),
		Clock:    g.machine.Times().Wall,
		Config:   g.configIndex.Load(),
		Segments: list,
		Digested: g.snapshotter.checks.due.Load(),
		Saved:    func() { g.snapshotter.saved(written) },
	}, nil
}

// freezeBodies retains the segments of a state that is to be written; the caller holds mu. A failed write of
// bodies stops the replica, unless space or a file descriptor is short.
func (g *Group) freezeBodies() ([]bodystore.SegmentSize, error) {
	if err := g.halted(); err != nil {
		return nil, err
	}
	list, err := g.bodies.Freeze()
	if err != nil && !disk.IsShortage(err) {
		g.halt(err)
	}
	return list, err
}

// Restore implements raft.FSM: it loads a snapshot that was received from the leader. The reader only
// identifies the snapshot; its bodies are in segments already.
func (f *machineFSM) Restore(r io.ReadCloser) error {
	g := (*Group)(f)
	if err := g.halted(); err != nil {
		return err
	}
	snapshot, err := snapshots.Sent(r)
	if err != nil {
		return err
	}
	opened, err := snapshot.OpenImage()
	for disk.IsOutOfFiles(err) && g.bodies.WaitForSpace() { // without mu: whoever reads the machine would wait too
		g.cfg.Log.Disk().Relieve(err)
		opened, err = snapshot.OpenImage()
	}
	if err == nil {
		g.mu.Lock()
		err = g.load(opened)
		g.mu.Unlock()
	}
	if err != nil {
		g.halt(err)
		return err
	}
	g.appliedWaiters.notify(g.applied.Load())
	if g.cfg.Applied != nil {
		g.cfg.Applied()
	}
	return nil
}

// appliedWaiters holds the readers that wait until an index is applied.
type appliedWaiters struct {
	mu      sync.Mutex
	indexes map[chan struct{}]uint64
}

// wait returns a channel that is closed when index is applied.
func (a *appliedWaiters) wait(index uint64) chan struct{} {
	c := make(chan struct{})
	a.mu.Lock()
	if a.indexes == nil {
		a.indexes = make(map[chan struct{}]uint64)
	}
	a.indexes[c] = index
	a.mu.Unlock()
	return c
}

func (a *appliedWaiters) cancel(c chan struct{}) {
	a.mu.Lock()
	delete(a.indexes, c)
	a.mu.Unlock()
}

func (a *appliedWaiters) notify(applied uint64) {
	a.mu.Lock()
	for c, i := range a.indexes {
		if i <= applied {
			close(c)
			delete(a.indexes, c)
		}
	}
	a.mu.Unlock()
}
