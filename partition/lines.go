package partition

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of waiting.
const (
	waitersMax = 1 << 16 // lock requests that wait in a group
	linesMax   = 1 << 16 // addresses remembered; over it those without waiters go
	lanesMax   = 1 << 16 // receivers remembered; over it all go, at the cost of one lock command each
)

// linesState is the part of the proposer that knows who waits for messages. Nothing of
// it is in the log: a new leader starts empty, and the routers ask again.
type linesState struct {
	lines   map[fsm.Address]*line
	lanes   map[laneKey]uint64 // the serial of the last lock proposed
	urgent  []*waiter          // to be proposed whatever is ready
	eager   []*line            // lines that may have something for somebody
	waiting int                // waiters in lines and in urgent
	arrival uint64             // of the newest waiter
}

type laneKey struct{ origin, lane uint64 }

// line is the row of those who wait at one address.
//
//	what a lock proposed now would find = ready + coming - promised
type line struct {
	address  fsm.Address
	waiters  []*waiter // by arrival
	urgent   int       // of those who are to be proposed at once
	ready    int       // as of the last apply, when known
	known    bool      // false: only a lock command can tell
	coming   int       // messages sent in entries in flight
	promised int       // asked for by locks in entries in flight
	eager    bool      // is in the list
}

// waiter is one lock request.
type waiter struct {
	LockRequest

	line  *line
	timer *time.Timer
	given int    // asked for by the lock in flight
	seat  uint64 // by arrival
	must  bool
	// state, late and refused belong to proposer.mu.
	state   waiterState
	late    bool     // its time ran out, or it was cancelled, while in flight
	refused fsm.Code // why nobody waits there any more
	once    sync.Once
}

type waiterState uint8

const (
	waits waiterState = iota
	flies
	ended
)

// end answers, once.
func (w *waiter) end(a Answer) {
	w.once.Do(func() {
		if w.timer != nil {
			w.timer.Stop()
		}
		w.Done(a)
	})
}

func (s *linesState) reset() {
	*s = linesState{lines: make(map[fsm.Address]*line), lanes: make(map[laneKey]uint64)}
}

// Lock waits until messages are ready at the leader and locks them. Done is called
// once, under the rules of Submit; when the wait ends at Until or by cancel it gets
// Done without deliveries. After a cancel that comes too late Done gets what was
// locked. The request is in no log while it waits: when leadership is lost it is
// Refused, or Unknown when its command was proposed already.
//
// A request whose Serial was proposed before, or whose lane this leader has not seen,
// is proposed at once: it may be a retry whose answer the machine remembers.
func (g *Group) Lock(r LockRequest) (cancel func()) {
	p := &g.p
	p.mu.Lock()
	refused := Answer{Outcome: Refused}
	if p.open && p.waiting >= waitersMax {
		refused.Result.Code = fsm.ServerBusy
	}
	if !p.open || p.waiting >= waitersMax {
		p.mu.Unlock()
		r.Done(refused)
		return func() {}
	}
	p.arrival++
	w := &waiter{LockRequest: r, line: p.line(r.Lock.Address), seat: p.arrival}
	last, seen := p.lanes[laneKey{r.Header.Origin, r.Header.Lane}]
	// One that has no time to wait is to get what is ready: a link that drains. Where it
	// is known that nothing is, that needs no command.
	hurried := !time.Now().Before(r.Until)
	again := !seen || r.Header.Serial <= last
	if hurried && !again && w.line.known && w.line.estimate() <= 0 {
		p.mu.Unlock()
		r.Done(Answer{Outcome: Done})
		return func() {}
	}
	w.must = hurried || again
	if w.must {
		p.urgent = append(p.urgent, w)
		w.line.urgent++
	} else {
		w.line.waiters = append(w.line.waiters, w)
		p.excite(w.line)
	}
	p.waiting++
	w.timer = time.AfterFunc(time.Until(r.Until), func() { p.giveUp(w) })
	wake := p.hungry() && len(p.inflight) < entriesInFlight
	p.mu.Unlock()
	if wake {
		p.poke()
	}
	return func() { p.giveUp(w) }
}

// giveUp ends the wait of w, unless its lock is in flight or must be proposed once.
func (p *proposer) giveUp(w *waiter) {
	p.mu.Lock()
	waited := w.state == waits && !w.must
	if !waited && w.state != ended {
		w.late = true
	}
	if waited {
		w.state = ended
		p.waiting--
		if i := slices.Index(w.line.waiters, w); i >= 0 {
			w.line.waiters = slices.Delete(w.line.waiters, i, i+1)
		}
	}
	p.mu.Unlock()
	if waited {
		w.end(Answer{Outcome: Done})
	}
}

// line finds or makes the line of an address. Called with mu held, like all below.
func (s *linesState) line(a fsm.Address) *line {
	l := s.lines[a]
	if l == nil {
		if len(s.lines) >= linesMax {
			for k, l := range s.lines {
				if len(l.waiters)+l.urgent+l.promised == 0 && l.coming == 0 && !l.eager {
					delete(s.lines, k)
				}
			}
		}
		l = &line{address: a}
		s.lines[a] = l
	}
	return l
}

// estimate says how many messages a lock proposed now would find. Where nothing is
// known one command finds out.
func (l *line) estimate() int {
	switch {
	case l.known:
		return l.ready + l.coming - l.promised
	case l.promised > 0:
		return 0
	}
	return 1
}

// excite notes that l may have something for those who wait.
func (s *linesState) excite(l *line) {
	if !l.eager && len(l.waiters) > 0 && l.estimate() > 0 {
		l.eager = true
		s.eager = append(s.eager, l)
	}
}

// hungry says whether a lock should go into an entry.
func (s *linesState) hungry() bool { return len(s.urgent) > 0 || len(s.eager) > 0 }

// foresee notes what a command of the entry being composed will make ready.
func (p *proposer) foresee(command []byte, it *item) {
	if len(p.lines) == 0 {
		return
	}
	info, err := fsm.PeekCommand(command)
	if err != nil {
		return
	}
	if info.Kind == fsm.KindPutQueue || info.Kind == fsm.KindDropQueue {
		it.changes = info.Address.Entity
		return
	}
	l := p.lines[info.Address]
	if l == nil || info.Kind != fsm.KindSendMessages {
		return
	}
	it.line, it.coming = l, info.Messages
	l.coming += info.Messages
	p.excite(l)
}

// feed adds the locks of those who wait to the entry, right behind the sends.
func (p *proposer) feed(b *batch) {
	if p.g.d.backlog() > deliveryBytesMax {
		return
	}
	for len(p.urgent) > 0 && len(b.items) < entryCommandsMax {
		w := p.urgent[0]
		p.urgent = slices.Delete(p.urgent, 0, 1)
		there := int(w.Lock.Max)
		if w.line.known {
			there = w.line.estimate()
		}
		each := share(there, len(w.line.waiters)+w.line.urgent)
		w.line.urgent--
		p.promise(b, w, min(int(w.Lock.Max), max(1, each)))
	}
	for i, l := range p.eager {
		n := l.estimate()
		if !l.known && n > 0 && len(l.waiters) > 0 {
			n = int(l.waiters[0].Lock.Max)
		}
		each := share(n, len(l.waiters))
		fed := 0
		for fed < len(l.waiters) && n > 0 {
			if len(b.items) >= entryCommandsMax {
				l.waiters = slices.Delete(l.waiters, 0, fed)
				p.eager = slices.Delete(p.eager, 0, i)
				return
			}
			w := l.waiters[fed]
			give := min(each, int(w.Lock.Max))
			if !l.known {
				give = int(w.Lock.Max)
			}
			n -= give
			fed++
			p.promise(b, w, give)
			if !l.known {
				break
			}
		}
		l.waiters = slices.Delete(l.waiters, 0, fed)
		l.eager = false
	}
	clear(p.eager)
	p.eager = p.eager[:0]
}

// share is what each of n gets of what is there, rounded up.
func share(there, n int) int {
	if n == 0 || there <= 0 {
		return 0
	}
	return (there + n - 1) / n
}

// promise adds one lock to the entry.
func (p *proposer) promise(b *batch, w *waiter, give int) {
	w.state, w.given = flies, give
	w.line.promised += give
	p.waiting--
	key := laneKey{w.Header.Origin, w.Header.Lane}
	if _, seen := p.lanes[key]; !seen && len(p.lanes) >= lanesMax {
		clear(p.lanes)
	}
	p.lanes[key] = w.Header.Serial
	lock := w.Lock
	lock.Max = uint32(give)
	b.add(fsm.AppendCommand(nil, w.Header, lock), item{waiter: w, line: w.line})
}

// unfold takes back what an entry that failed had promised.
func (p *proposer) unfold(b *batch) {
	for _, it := range b.items {
		if it.waiter != nil {
			it.waiter.state = ended
			it.line.promised -= it.waiter.given
			p.excite(it.line)
		} else if it.line != nil {
			it.line.coming -= it.coming
		}
	}
}

// settleLines brings the lines up to an applied entry. Locks that found nothing go back
// to their seats; those among them that have no more time come back.
func (p *proposer) settleLines(b *batch, results []fsm.Result) (over []*waiter) {
	var back []*waiter
	for i, it := range b.items {
		w := it.waiter
		if w == nil {
			if it.line != nil {
				it.line.coming -= it.coming
			}
			if it.changes != 0 {
				p.doubt(it.changes)
			}
			continue
		}
		l := it.line
		l.promised -= w.given
		found := len(results[i].Deliveries)
		switch {
		case found > 0 && w.must:
			l.known = false // a remembered answer says nothing about what is ready
		case found > 0:
			l.ready = max(0, l.ready-found)
		case results[i].Code == fsm.OK:
			l.ready, l.known = 0, true
		}
		w.state = ended
		if results[i].Code == fsm.EntityNotFound || results[i].Code == fsm.EntityDisabled {
			over = append(over, p.refuse(l, results[i].Code)...)
		}
		if found > 0 || results[i].Code != fsm.OK {
			continue
		}
		if w.late {
			over = append(over, w)
			continue
		}
		w.state, w.must = waits, false
		p.waiting++
		back = append(back, w)
	}
	for _, w := range back {
		i, _ := slices.BinarySearchFunc(w.line.waiters, w.seat, func(o *waiter, seat uint64) int {
			return cmp.Compare(o.seat, seat)
		})
		w.line.waiters = slices.Insert(w.line.waiters, i, w)
	}
	return over
}

// refuse ends the waiting at an address that gives nothing any more: what one lock was
// told holds for all who wait there. Whoever comes asks anew.
func (p *proposer) refuse(l *line, code fsm.Code) []*waiter {
	all := l.waiters
	l.waiters, l.known = nil, false
	for _, w := range all {
		w.state, w.refused = ended, code
		p.waiting--
	}
	return all
}

// doubt forgets what is known of a queue that was changed, dropped, or has deleted
// itself: the first of those who wait there finds out, for all.
func (s *linesState) doubt(id fsm.EntityID) {
	for _, sub := range []fsm.SubQueue{fsm.MainQueue, fsm.DeadLetterQueue} {
		if l := s.lines[fsm.Address{Entity: id, Sub: sub}]; l != nil {
			l.known = false
			s.excite(l)
		}
	}
}

// observe takes what apply says of an address.
func (s *linesState) observe(e fsm.Effect) {
	if l := s.lines[e.Address]; l != nil {
		l.ready, l.known = int(min(e.Ready, 1<<30)), true
	}
}

// exciteAll looks again at the lines of an applied entry.
func (s *linesState) exciteAll(b *batch) {
	for _, it := range b.items {
		if it.line != nil {
			s.excite(it.line)
		}
	}
}

// allWaiters empties the lines and returns who waited there.
func (s *linesState) allWaiters() []*waiter {
	all := s.urgent
	for _, l := range s.lines {
		all = append(all, l.waiters...)
	}
	for _, w := range all {
		w.state = ended
	}
	return all
}
