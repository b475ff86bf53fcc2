package partition

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of prepare.
const (
	entryCommandsMax      = 256
	entryBytesMax         = 512 << 10 // of commands, unless one alone is larger
	entriesInFlight       = 4         // proposed and not yet applied; more only adds to the tail a new leader must sort out
	queueCommandsMax      = 1 << 16   // waiting for an entry
	queueBytesMax         = 64 << 20
	futureLookAfter       = 25 * time.Millisecond // an entry in flight for longer is looked after
	pulseApart            = time.Millisecond      // between two pulses at least
	deliveryBytesMax      = 64 << 20              // being read from disk: above it nothing more is locked
	entryVersion     byte = 1
)

// submission is a command that waits for an entry.
type submission struct {
	command []byte
	done    func(Answer)
}

// item is a command of an entry in flight.
type item struct {
	done   func(Answer)
	waiter *waiter // of a lock request from a line
	line   *line
	coming int // messages that a send will make ready at line
	// changes is the entity that a put or drop is about: who waits there asks anew.
	changes fsm.EntityID
	drops   bool
	cold    bool // the bodies of the answer must be read from disk
}

// end is what to call with the result, nil for nothing: a lock that found nothing waits
// on.
func (it *item) end(r fsm.Result) func(Answer) {
	if it.waiter == nil {
		return it.done
	}
	if len(r.Deliveries) > 0 || r.Session.Epoch != 0 || r.Code != fsm.OK {
		return it.waiter.end
	}
	return nil
}

// batch is an entry in flight.
type batch struct {
	id       uint64
	items    []item
	commands [][]byte // until encoded
	now      fsm.Instant
	future   raft.ApplyFuture
	at       time.Time // composed
	since    time.Time // the oldest of its commands came, or did not fit into the entry before
	taken    time.Time // raft's main goroutine took it; guarded by the proposer's mu
	watched  bool
	pulse    bool
	followed []followed // lines that its sends to topics may be for
	guessed  int        // locks for them, at most speculativeLocksMax
}

// proposer is the leader's side: it gathers what waits into entries, hands them to raft
// and finds the callers again when they are applied.
//
//	Submit, Lock -> queue, lines -- run: compose, encode --> raft.Apply
//	                                         ... quorum ...
//	callers      <- settle <- apply, which finds the entry by its batch id
//
// Raft's futures are not waited for: apply answers. Only an entry that takes long gets
// a goroutine that listens to its future, for the errors that never reach apply.
type proposer struct {
	g    *Group
	wake chan struct{}

	flying atomic.Int32 // len(inflight), for apply on followers

	mu           sync.Mutex
	open         bool // this replica leads
	closed       bool
	transferring bool
	term         uint64
	barrier      uint64 // everything up to it is applied
	queue        []submission
	head         int
	queueBytes   int
	oldest       time.Time // since when the oldest in the queue waits; of use while it is not empty
	inflight     []*batch
	nextID       uint64
	stamp        fsm.Instant
	pulsing      bool
	pulsed       time.Time // when the last one was composed
	spent        uint64    // term in which leadership was handed over
	wedged       time.Time // since when raft refuses because of a transfer
	rest         time.Time // until when run sleeps, zero: until woken
	linesState
}

func (p *proposer) init(g *Group) {
	p.g = g
	p.wake = make(chan struct{}, 1)
	p.reset()
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	p.nextID = binary.LittleEndian.Uint64(seed[:])
}

// Submit hands in a command encoded with fsm.AppendCommand; it belongs to the group
// from now on. done gets the end of it, once: on the goroutine of apply, of a delivery,
// or, when it is refused at once, on the caller's own. It must not block. Submit never
// blocks: over its limits it refuses with ServerBusy, and so it does, when disk or memory are
// short, what makes the data grow.
func (g *Group) Submit(command []byte, done func(Answer)) {
	p := &g.p
	firm := g.short.Load()
	cramped := (firm || g.cfg.Log.space.refuses()) && grows(command)
	p.mu.Lock()
	if !p.open {
		p.mu.Unlock()
		done(Answer{Outcome: Refused})
		return
	}
	if cramped || len(p.queue)-p.head >= queueCommandsMax || p.queueBytes+len(command) > queueBytesMax {
		p.mu.Unlock()
		p.g.counts.refused.Add(1)
		done(Answer{Outcome: Refused, Firm: cramped && firm, Result: fsm.Result{Code: fsm.ServerBusy}})
		return
	}
	if p.head == len(p.queue) {
		p.oldest = p.g.slowClock()
	}
	p.queue = append(p.queue, submission{command, done})
	p.queueBytes += len(command)
	wake := len(p.inflight) < entriesInFlight
	p.mu.Unlock()
	if wake {
		p.poke()
	}
}

// poke wakes run.
func (p *proposer) poke() { poke(p.wake) }

// figures adds what Status shows.
func (p *proposer) figures(s *Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Leads, s.HandingOver = p.open, p.transferring
	s.Queued, s.InFlight, s.Waiting = len(p.queue)-p.head, len(p.inflight), p.waiting
}

// lead opens for submissions.
func (p *proposer) lead(term, barrier uint64) {
	p.mu.Lock()
	if !p.closed {
		p.open, p.term, p.barrier = true, term, barrier
	}
	p.transferring = false
	p.mu.Unlock()
	p.g.counts.terms.Add(1)
	p.poke()
}

// follow closes for submissions and reports whether it was open. What is in flight ends
// Unknown: it may still be committed by the next leader. What only waited is Refused.
func (p *proposer) follow() bool { return p.end(Unknown) }

// shut closes for good.
func (p *proposer) shut(inflight Outcome) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end(inflight)
}

func (p *proposer) end(inflight Outcome) bool {
	p.mu.Lock()
	was := p.open
	p.open, p.transferring, p.pulsing = false, false, false
	p.wedged = time.Time{}
	queue := p.queue[p.head:]
	flying := p.inflight
	waiters := p.allWaiters()
	p.queue, p.head, p.queueBytes, p.inflight = nil, 0, 0, nil
	p.flying.Store(0)
	p.reset()
	p.mu.Unlock()
	for _, s := range queue {
		s.done(Answer{Outcome: Refused})
	}
	for _, w := range waiters {
		w.end(Answer{Outcome: Refused})
	}
	for _, b := range flying {
		b.fail(inflight)
	}
	return was
}

// fail answers every caller of an entry.
func (b *batch) fail(o Outcome) {
	for _, it := range b.items {
		switch {
		case it.waiter != nil:
			it.waiter.end(Answer{Outcome: o})
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
		var rest time.Duration
		if b == nil {
			rest = p.sleep(time.Now())
		}
		p.mu.Unlock()
		if b != nil {
			p.propose(b)
			continue
		}
		timer.Reset(rest)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// sleep says how long nothing will have to be done unless run is woken, and looks after
// entries that have been in flight for long. Called with mu held.
func (p *proposer) sleep(now time.Time) time.Duration {
	rest := time.Hour
	for _, b := range p.inflight {
		if b.watched || b.future == nil {
			continue
		}
		if age := now.Sub(b.at); age < futureLookAfter {
			rest = min(rest, futureLookAfter-age)
			continue
		}
		b.watched = true
		go p.lookAfter(b)
	}
	if due := p.g.deadline.Load(); p.open && due != 0 && !p.pulsing {
		wait := time.Duration(due-p.g.cfg.Now().UnixMilli()) * time.Millisecond
		rest = min(rest, max(wait, pulseApart-now.Sub(p.pulsed), 0))
	}
	p.rest = now.Add(rest)
	return rest
}

// due says whether a pulse should go. Called with mu held.
func (p *proposer) due(now time.Time) bool {
	at := p.g.deadline.Load()
	return at != 0 && !p.pulsing && p.g.cfg.Now().UnixMilli() >= at && now.Sub(p.pulsed) >= pulseApart
}

// compose takes what waits into an entry, nil when there is nothing or no room. Called
// with mu held.
func (p *proposer) compose(now time.Time) *batch {
	if !p.open || p.transferring || len(p.inflight) >= entriesInFlight {
		return nil
	}
	queued := len(p.queue) > p.head
	if !queued && !p.hungry() && !p.due(now) {
		return nil
	}
	b := &batch{id: p.nextID, at: now, since: now}
	if queued && !p.oldest.IsZero() {
		b.since = p.oldest
	}
	p.oldest = now // of what does not fit
	size := 0
	if p.due(now) {
		p.pulsing, p.pulsed, b.pulse = true, now, true
		b.add(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}), item{})
	}
	for p.head < len(p.queue) && len(b.items) < entryCommandsMax {
		s := p.queue[p.head]
		if size > 0 && size+len(s.command) > entryBytesMax {
			break
		}
		p.queue[p.head] = submission{}
		p.head++
		size += len(s.command)
		it := item{done: s.done}
		p.foresee(b, s.command, &it)
		b.add(s.command, it)
	}
	p.queueBytes -= size
	if p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	} else if p.head > len(p.queue)/2 {
		n := copy(p.queue, p.queue[p.head:])
		clear(p.queue[n:])
		p.queue, p.head = p.queue[:n], 0
	}
	p.feed(b)
	if len(b.items) == 0 {
		return nil
	}
	p.nextID++
	p.stamp = max(p.stamp, fsm.Instant(p.g.cfg.Now().UnixMilli()), fsm.Instant(p.g.clock.Load()))
	b.now = p.stamp
	p.inflight = append(p.inflight, b)
	p.flying.Store(int32(len(p.inflight)))
	return b
}

func (b *batch) add(command []byte, it item) {
	b.commands = append(b.commands, command)
	b.items = append(b.items, it)
}

// propose hands an entry to raft. It waits until raft's main goroutine takes it, which
// is where what comes meanwhile gathers for the next entry.
func (p *proposer) propose(b *batch) {
	data := encodeEntry(b.now, b.id, b.commands)
	b.commands = nil
	f := p.g.inst.Load().raft.Apply(data, 0)
	p.mu.Lock()
	b.future, b.taken = f, p.g.slowClock()
	p.mu.Unlock()
}

// lookAfter waits for the end of an entry that takes long, for the errors that do not
// come by way of apply.
func (p *proposer) lookAfter(b *batch) {
	err := b.future.Error()
	outcome := Unknown
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		outcome = Refused
	}
	p.mu.Lock()
	found := p.take(b.id) != nil
	stuck := false
	if found {
		p.unfold(b)
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			now := time.Now()
			if p.wedged.IsZero() {
				p.wedged = now
			}
			stuck = now.Sub(p.wedged) > 2*p.g.cfg.Timing.Election
		}
	}
	p.mu.Unlock()
	if stuck {
		p.g.askReopen("a leadership transfer never ended")
	}
	if found {
		b.fail(outcome)
		p.poke()
	}
}

// take removes an entry from those in flight. Called with mu held.
func (p *proposer) take(id uint64) *batch {
	for i, b := range p.inflight {
		if b.id == id {
			p.inflight = append(p.inflight[:i], p.inflight[i+1:]...)
			p.flying.Store(int32(len(p.inflight)))
			if b.pulse {
				p.pulsing = false
			}
			return b
		}
	}
	return nil
}

// find returns the entry of that id and number of commands that this replica has in
// flight, nil when it is not one of ours.
func (p *proposer) find(id uint64, commands int) *batch {
	if p.flying.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.inflight {
		if b.id == id && len(b.items) == commands {
			return b
		}
	}
	return nil
}
