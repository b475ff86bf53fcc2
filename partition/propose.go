package partition

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/entrysum"
	"github.com/peeklock/peeklock/partition/lanes"
	"github.com/peeklock/peeklock/partition/stamp"
)

// The limits of proposing.
const (
	entryCommandsMax = 256
	entryLocksMin    = 64                    // commands of an entry that are left for locks, if so many wait; and at most of locks that are proposed whether or not messages are ready
	entryBytesMax    = 512 << 10             // of commands, and what their messages cost in addition, unless a single command has more
	entriesInFlight  = 4                     // proposed and not yet applied; more would only lengthen the uncommitted tail that a new leader must resolve
	futureWatchAfter = 25 * time.Millisecond // an entry in flight for longer gets a goroutine on its future
	pulseIntervalMin = time.Millisecond      // between two pulses at least
	bodyReadBytesMax = 64 << 20              // being read from disk: above it no further locks are proposed
)

// submission is a command that waits for an entry.
type submission = lanes.Command[func(Answer)]

// item is a command of an entry in flight.
type item struct {
	done     func(Answer)
	waiter   *waiter // set for a lock request from a wait queue
	queue    *waitQueue
	expected int // messages that a send will make ready at queue
	// changedEntity is the entity of a put or drop: what is known about its wait queues becomes invalid.
	changedEntity fsm.EntityID
	isDrop        bool
	needsRead     bool // the bodies of the answer must be read from disk
}

// callback returns the function to call with the result, nil for none: a lock that found nothing continues to
// wait.
func (it *item) callback(r fsm.Result) func(Answer) {
	if it.waiter == nil {
		return it.done
	}
	if len(r.Deliveries) > 0 || r.Session.Epoch != 0 || r.Code != fsm.OK {
		return it.waiter.answer
	}
	return nil
}

// batch is an entry in flight.
type batch struct {
	id               uint64
	items            []item
	commands         [][]byte // until encoded
	times            fsm.Times
	future           raft.ApplyFuture
	composedAt       time.Time // composed
	waitingSince     time.Time // its oldest command was submitted, or did not fit into the previous entry
	takenAt          time.Time // raft's main goroutine took it; guarded by the proposer's mu
	watched          bool
	pulse            bool
	speculations     []speculation // wait queues that its sends to topics may serve
	speculativeLocks int           // locks proposed for them, at most speculativeLocksMax
}

// proposer is the leader's part of a group: it batches waiting commands and locks into entries, hands them to
// raft and finds their callers again when the entries are applied.
//
//	Submit, Lock -> submissions, wait queues -- run: compose, encode --> raft.Apply
//	                                         ... quorum ...
//	callers      <- settle <- apply, which finds the entry by its batch id
//
// The proposer does not wait for raft's futures: apply answers. Only an entry that takes long gets a
// goroutine that waits for its future, for the errors that never reach apply.
type proposer struct {
	g    *Group
	wake chan struct{}

	inFlightCount atomic.Int32 // len(inFlight), for apply on followers

	mu                 sync.Mutex
	leading            bool // this replica is the leader and accepts submissions
	closed             bool
	transferring       bool
	term               uint64
	barrier            uint64 // everything up to this index is applied
	submissions        lanes.Queue[func(Answer)]
	oldestSince        time.Time // time since which the oldest submission waits; meaningless while there is none
	inFlight           []*batch
	nextID             uint64
	lastStamp          fsm.Times
	stampedAt          time.Duration // monotonic time of lastStamp
	stamper            stamp.Stamper
	pulseInFlight      bool
	pulseComposedAt    time.Time // time at which the last pulse was composed
	transferTerm       uint64    // term in which a leadership transfer was tried
	transferStuckSince time.Time // time since which raft refuses entries because of a transfer
	sleepUntil         time.Time // time until which run sleeps; zero: until it is woken
	waitQueues
}

func (p *proposer) init(g *Group) {
	p.g = g
	p.wake = make(chan struct{}, 1)
	p.reset()
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	p.nextID = binary.LittleEndian.Uint64(seed[:])
}

// Submit queues a command encoded with fsm.AppendCommand; the group owns the bytes from now on. done is
// called exactly once with the outcome: on the goroutine of apply, on that of the body reader or, when the
// command is refused at once, on the caller's own. It must not block. Submit never blocks: over its limits it
// refuses with ServerBusy, and it does the same for commands that make data grow while disk or memory are
// low (or, when the last reserve of the disk is in use, for all that free nothing), for commands that Config.Refuses refuses (with its code), for commands that take messages while a new leader's time is unconfirmed, and for commands whose format
// level the log has not reached.
func (g *Group) Submit(command []byte, done func(Answer)) {
	p := &g.proposer
	info, _ := fsm.PeekCommand(command)
	final := g.toldReadOnly.Load()
	readOnly := info.Kind.Grows() && (final || g.cfg.Log.Disk().RefusesGrowth()) && fsm.Grows(command) && !g.withdraws(command)
	readOnly = readOnly || g.cfg.Log.Disk().IsExhausted() && fsm.Holds(command)
	full := fsm.OK
	if g.cfg.Refuses != nil && info.Kind.Grows() {
		full = g.cfg.Refuses(command)
	}
	early := g.isEarly(info.Kind.Level())
	namespace := fsm.NamespaceID(0)
	if g.cfg.Namespace != nil {
		namespace = g.cfg.Namespace(&info, command)
	}
	p.mu.Lock()
	if !p.leading {
		p.mu.Unlock()
		done(Answer{Outcome: Refused})
		return
	}
	if full != fsm.OK && !readOnly {
		p.mu.Unlock()
		p.g.counts.refused.Add(1)
		done(Answer{Outcome: Refused, Final: true, Result: fsm.Result{Code: full}})
		return
	}
	first := p.submissions.Len() == 0
	if readOnly || early || p.holdsTaking(info.Kind) || !p.submissions.Add(namespace, submission{Info: info, Bytes: command, Done: done}) {
		p.mu.Unlock()
		p.g.counts.refused.Add(1)
		done(Answer{Outcome: Refused, Final: readOnly && final, Result: fsm.Result{Code: fsm.ServerBusy}})
		return
	}
	if first {
		p.oldestSince = time.Now()
	}
	wake := p.canPropose()
	p.mu.Unlock()
	if wake {
		p.notify()
	}
}

// isEarly reports whether a command that needs a format level comes before the log of this group has that level. The
// cluster has reached it before somebody writes such a command; the log will soon.
func (g *Group) isEarly(needed uint32) bool {
	return needed > max(1, g.level.Load())
}

// SetReadOnly makes this replica, as leader, refuse commands that make data grow, as if its own disk were low
// on space: for when so many other voters are low that no quorum has space. Its refusals are then Final.
func (g *Group) SetReadOnly(on bool) { g.toldReadOnly.Store(on) }

// isReadOnly reports whether commands that make data grow are refused.
func (g *Group) isReadOnly() bool {
	return g.toldReadOnly.Load() || g.cfg.Log.Disk().RefusesGrowth()
}

// withdraws reports whether a command, which may make data grow, only withdraws access rules: that is never refused.
func (g *Group) withdraws(command []byte) (only bool) {
	g.View(func(m Machine) {
		c, ok := m.(interface{ Withdraws(command []byte) bool })
		only = ok && c.Withdraws(command)
	})
	return only
}

// notify wakes run.
func (p *proposer) notify() { notify(p.wake) }

// addStatus fills in the fields of Status that the proposer knows.
func (p *proposer) addStatus(s *Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.IsLeader, s.Transferring = p.leading, p.transferring
	s.Queued, s.InFlight, s.Waiting = p.submissions.Len(), len(p.inFlight), p.waiterCount
}

// becomeLeader opens the group for submissions.
func (p *proposer) becomeLeader(term, barrier uint64) {
	p.mu.Lock()
	if !p.closed {
		p.leading, p.term, p.barrier = true, term, barrier
		p.stamper, p.lastStamp = stamp.Stamper{}, fsm.Times{} // of entries that may never be committed; what was is applied
		_, c := p.nextTimes()                                 // serving time begins now, and not with the first entry
		p.stampedAt = c.Monotonic
	}
	p.transferring = false
	p.mu.Unlock()
	p.g.counts.leaderships.Add(1)
	p.notify()
}

// close closes the proposer for good.
func (p *proposer) close(inflight Outcome) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.endLeadership(inflight, math.MaxUint64)
}

// endLeadership ends a leadership of a term before the given one: it closes the group for submissions and reports whether it
// was open. Entries in flight end with the given outcome: Unknown if the next leader may still commit them. Commands that only
// waited are Refused.
func (p *proposer) endLeadership(inflight Outcome, before uint64) bool {
	p.mu.Lock()
	if p.leading && p.term >= before {
		p.mu.Unlock()
		return false
	}
	was := p.leading
	p.leading, p.transferring, p.pulseInFlight = false, false, false
	p.transferStuckSince = time.Time{}
	queue := p.submissions.All()
	batches := p.inFlight
	waiters := p.takeAllWaiters()
	p.submissions, p.inFlight = lanes.Queue[func(Answer)]{}, nil
	p.inFlightCount.Store(0)
	p.reset()
	p.mu.Unlock()
	for _, s := range queue {
		s.Done(Answer{Outcome: Refused})
	}
	for _, w := range waiters {
		w.answer(Answer{Outcome: Refused})
	}
	for _, b := range batches {
		b.fail(inflight)
	}
	return was
}

// fail answers every caller of an entry.
func (b *batch) fail(o Outcome) {
	for _, it := range b.items {
		switch {
		case it.waiter != nil:
			it.waiter.answer(Answer{Outcome: o})
		case it.done != nil:
			it.done(Answer{Outcome: o})
		}
	}
}

// run composes entries until ctx ends.
func (p *proposer) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		b := p.compose(time.Now())
		var wait time.Duration
		if b == nil {
			wait = p.sleepFor(time.Now())
		}
		p.mu.Unlock()
		if b != nil {
			p.propose(b)
			continue
		}
		timer.Reset(wait)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// sleepFor returns the time for which run has nothing to do unless it is woken, and starts watchFuture for
// entries that have been in flight for long. Called with mu held.
func (p *proposer) sleepFor(now time.Time) time.Duration {
	most := time.Hour
	for _, b := range p.inFlight {
		if b.watched || b.future == nil {
			continue
		}
		if age := now.Sub(b.composedAt); age < futureWatchAfter {
			most = min(most, futureWatchAfter-age)
			continue
		}
		b.watched = true
		go p.watchFuture(b, p.g.instance.Load().closed)
	}
	if p.canPropose() && !p.pulseInFlight {
		if wait, ok := p.untilPulse(); ok {
			most = min(most, max(wait, pulseIntervalMin-now.Sub(p.pulseComposedAt), 0), wallCheckInterval)
		}
	}
	p.sleepUntil = now.Add(most)
	return most
}

// canPropose reports whether compose may make an entry. What makes it true again wakes run. Called with mu held.
func (p *proposer) canPropose() bool {
	return p.leading && !p.transferring && len(p.inFlight) < entriesInFlight && !p.gathers()
}

// gathers reports whether the next entry waits for more commands: until as many are queued as are in flight, or
// nothing is in flight. No timer is needed, because every end of an entry in flight wakes run. Called with mu held.
func (p *proposer) gathers() bool {
	inFlight := 0
	for _, b := range p.inFlight {
		inFlight += len(b.items)
	}
	queued := p.submissions.Len() + min(p.proposeCount, entryLocksMin) + len(p.ready)
	return queued < min(inFlight, entryCommandsMax) && p.submissions.Bytes() < entryBytesMax
}

// pulseDue reports whether a pulse should be proposed. Called with mu held.
func (p *proposer) pulseDue(now time.Time) bool {
	if p.pulseInFlight || now.Sub(p.pulseComposedAt) < pulseIntervalMin {
		return false
	}
	wait, ok := p.untilPulse()
	return ok && wait <= 0
}

// compose batches waiting commands and locks into an entry. It returns nil when there are none or too many
// entries are in flight. Called with mu held.
func (p *proposer) compose(now time.Time) *batch {
	if !p.canPropose() {
		return nil
	}
	queued := p.submissions.Len() > 0
	if !queued && !p.hasLocksToPropose() && !p.pulseDue(now) {
		return nil
	}
	b := &batch{id: p.nextID, composedAt: now, waitingSince: now}
	if queued && !p.oldestSince.IsZero() {
		b.waitingSince = p.oldestSince
	}
	p.oldestSince = now // of the commands that do not fit
	size := 0
	if p.pulseDue(now) {
		p.pulseInFlight, p.pulseComposedAt, b.pulse = true, now, true
		b.add(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}), item{})
	}
	most := entryCommandsMax - min(p.proposeCount+len(p.ready), entryLocksMin)
	for len(b.items) < most {
		left := math.MaxInt
		if size > 0 {
			left = entryBytesMax - size
		}
		s, cost, ok := p.submissions.Take(left)
		if !ok {
			break
		}
		size += cost
		it := item{done: s.Done}
		p.countSends(b, &s.Info, &it)
		b.add(s.Bytes, it)
	}
	p.addLocks(b)
	if len(b.items) == 0 {
		return nil
	}
	p.nextID++
	b.times = p.stamp()
	p.inFlight = append(p.inFlight, b)
	p.inFlightCount.Store(int32(len(p.inFlight)))
	return b
}

func (b *batch) add(command []byte, it item) {
	b.commands = append(b.commands, command)
	b.items = append(b.items, it)
}

// propose hands an entry to raft. It waits until raft's main goroutine takes the entry; meanwhile commands
// gather for the next one.
func (p *proposer) propose(b *batch) {
	data := encodeEntry(b.times, b.id, b.commands)
	b.commands = nil
	n := len(data)
	summed := entrysum.Append(data, data)
	f := p.g.instance.Load().raft.ApplyLog(raft.Log{Data: summed[:n:n], Extensions: summed[n:]}, 0)
	p.mu.Lock()
	b.future, b.takenAt = f, time.Now()
	p.mu.Unlock()
}

// watchFuture waits for the future of an entry that takes long, for the errors that never reach apply. Raft never answers for an
// entry that is committed and not yet applied when the instance ends; endLeadership answers its callers.
func (p *proposer) watchFuture(b *batch, ended <-chan struct{}) {
	answered := make(chan error, 1)
	go func(f raft.ApplyFuture) { answered <- f.Error() }(b.future) // it may stay, so it refers to nothing else
	var err error
	select {
	case err = <-answered:
	case <-ended:
		return
	}
	outcome := Unknown
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		outcome = Refused
	}
	p.mu.Lock()
	found := p.removeInFlight(b.id) != nil
	stuck := false
	if found {
		p.revertCounts(b)
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			now := time.Now()
			if p.transferStuckSince.IsZero() {
				p.transferStuckSince = now
			}
			stuck = now.Sub(p.transferStuckSince) > 2*p.g.cfg.Timing.Election
		}
	}
	p.mu.Unlock()
	if stuck {
		p.g.requestReopen("a leadership transfer never ended")
	}
	if found {
		b.fail(outcome)
		p.notify()
	}
}

// removeInFlight removes an entry from those in flight. Called with mu held.
func (p *proposer) removeInFlight(id uint64) *batch {
	for i, b := range p.inFlight {
		if b.id == id {
			p.inFlight = append(p.inFlight[:i], p.inFlight[i+1:]...)
			p.inFlightCount.Store(int32(len(p.inFlight)))
			if b.pulse {
				p.pulseInFlight = false
			}
			return b
		}
	}
	return nil
}

// findInFlight returns the entry in flight with that id and number of commands, nil when this replica has not
// proposed it.
func (p *proposer) findInFlight(id uint64, commands int) *batch {
	if p.inFlightCount.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.inFlight {
		if b.id == id && len(b.items) == commands {
			return b
		}
	}
	return nil
}
