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
	lines    map[lineKey]*line
	families map[fsm.EntityID]*family // lines at subscriptions, by topic
	lanes    map[laneKey]uint64       // the serial of the last lock proposed
	urgent   []*waiter                // to be proposed whatever is ready
	eager    []*line                  // lines that may have something for somebody
	sessions int                      // lines that are not of whole addresses
	waiting  int                      // waiters in lines and in urgent
	arrival  uint64                   // of the newest waiter
}

type laneKey struct{ origin, lane uint64 }

// lineKey says what those in a line wait for.
type lineKey struct {
	fsm.Address
	what    lineKind
	session string // sessionLine only
}

type lineKind uint8

const (
	wholeLine   lineKind = iota // messages of an address
	sessionLine                 // messages of a session that is held
	acceptLine                  // a session that nobody holds
)

// key is the line that a request waits in.
func (r *LockRequest) key() lineKey {
	switch {
	case r.Accept != nil:
		return lineKey{Address: fsm.Address{Entity: r.Accept.Entity}, what: acceptLine}
	case r.Lock.Session.Epoch != 0:
		return lineKey{Address: r.Lock.Address, what: sessionLine, session: r.Lock.Session.ID}
	}
	return lineKey{Address: r.Lock.Address}
}

// line is the row of those who wait for the same: at one address, or in one session.
//
//	what a lock proposed now would find = ready + coming - promised
type line struct {
	lineKey
	waiters  []*waiter // by arrival
	urgent   int       // of those who are to be proposed at once
	ready    int       // as of the last apply, when known
	known    bool      // false: only a lock command can tell
	coming   int       // messages sent in entries in flight
	promised int       // asked for by locks in entries in flight
	eager    bool      // is in the list
	epoch    uint64    // of the session lock that was asked under last; session lines only

	placed bool // the machine has said what topic is
	// topic is whose sends may be for this line, only the machine knows which: the topic of
	// a subscription, the entity itself where messages are given out by session, else 0.
	topic fsm.EntityID
	// lucky is whether the last message of the topic that was looked at was for this line,
	// as far as is known. Main queues of subscriptions only.
	lucky bool
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
	*s = linesState{
		lines:    make(map[lineKey]*line),
		families: make(map[fsm.EntityID]*family),
		lanes:    make(map[laneKey]uint64),
	}
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
	if r.Accept != nil {
		r.Lock.Max = 1
	}
	p.mu.Lock()
	var l *line
	if p.open {
		l = p.placedLine(r.key())
	}
	refused := Answer{Outcome: Refused}
	if p.open && p.waiting >= waitersMax {
		refused.Result.Code = fsm.ServerBusy
	}
	if !p.open || p.waiting >= waitersMax {
		p.mu.Unlock()
		r.Done(refused)
		return func() {}
	}
	l.meet(r.Lock.Session.Epoch)
	p.arrival++
	w := &waiter{LockRequest: r, line: l, seat: p.arrival}
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

// line finds or makes a line. Called with mu held, like all below.
func (s *linesState) line(key lineKey) *line {
	l := s.lines[key]
	if l == nil {
		if len(s.lines) >= linesMax {
			for k, l := range s.lines {
				if len(l.waiters)+l.urgent+l.promised == 0 && l.coming == 0 && !l.eager {
					s.remove(k)
				}
			}
			s.regroup()
		}
		l = &line{lineKey: key}
		s.lines[key] = l
		if key.what != wholeLine {
			s.sessions++
		}
	}
	return l
}

func (s *linesState) remove(key lineKey) {
	delete(s.lines, key)
	if key.what != wholeLine {
		s.sessions--
	}
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

// meet notes under which session lock is asked. Effects tell of a session only while it is
// held, so what was known under an earlier lock says nothing: messages may have come, or come
// back, before the next one.
func (l *line) meet(epoch uint64) {
	if l.epoch != epoch {
		l.epoch, l.known = epoch, false
	}
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
func (p *proposer) foresee(b *batch, command []byte, it *item) {
	if len(p.lines) == 0 {
		return
	}
	info, err := fsm.PeekCommand(command)
	if err != nil {
		return
	}
	if info.Kind == fsm.KindPutEntity || info.Kind == fsm.KindDropEntity {
		it.changes, it.drops = info.Address.Entity, info.Kind == fsm.KindDropEntity
		return
	}
	if info.Kind != fsm.KindSendMessages && info.Kind != fsm.KindTransferMessages {
		return
	}
	l := p.lines[lineKey{Address: info.Address}]
	if l == nil {
		p.speculate(b, info.Address.Entity, info.Messages)
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
	if w.Accept != nil {
		b.add(fsm.AppendCommand(nil, w.Header, *w.Accept), item{waiter: w, line: w.line})
		return
	}
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
	p.unfollow(b)
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
			if it.drops {
				p.doubtAll(it.changes)
			} else if it.changes != 0 {
				p.doubt(it.changes)
			}
			continue
		}
		l := it.line
		l.promised -= w.given
		found := len(results[i].Deliveries)
		if results[i].Session.Epoch != 0 {
			found = 1
		}
		b.learn(w, found)
		switch {
		case found > 0 && w.must:
			l.known = false // a remembered answer says nothing about what is ready
		case found > 0:
			l.ready = max(0, l.ready-found)
		case results[i].Code == fsm.OK:
			l.ready, l.known = 0, true
		}
		w.state = ended
		if code := results[i].Code; code == fsm.EntityNotFound || code == fsm.EntityDisabled || code == fsm.NotAllowed {
			over = append(over, p.refuse(l, code)...) // it is gone, closed, or forwards
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
	p.unfollow(b)
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
	for _, sub := range []fsm.SubQueue{fsm.MainQueue, fsm.DeadLetterQueue, fsm.TransferDeadLetterQueue} {
		if l := s.lines[lineKey{Address: fsm.Address{Entity: id, Sub: sub}}]; l != nil {
			l.known = false
			s.excite(l)
		}
	}
	if s.sessions == 0 {
		return
	}
	for _, l := range s.lines {
		if l.what != wholeLine && l.Entity == id {
			l.known = false
			s.excite(l)
		}
	}
}

// observe takes what apply says of an address.
func (s *linesState) observe(e fsm.Effect) *line {
	l := s.lineOf(e)
	switch {
	case l == nil:
	case e.Kind == fsm.EffectSessionLost:
		l.known = false // whoever waits there finds out
	default:
		l.ready, l.known = int(min(e.Ready, 1<<30)), true
		s.setLucky(l, true)
	}
	return l
}

// lineOf is the line that an effect is about, nil when nobody ever waited there.
func (s *linesState) lineOf(e fsm.Effect) *line {
	if e.Kind == fsm.EffectSession {
		return s.lines[lineKey{Address: e.Address, what: acceptLine}]
	}
	if s.sessions > 0 {
		if l := s.lines[lineKey{Address: e.Address, what: sessionLine, session: e.Session}]; l != nil {
			return l
		}
	}
	return s.lines[lineKey{Address: e.Address}]
}

// exciteAll looks again at the lines of an applied entry.
func (s *linesState) exciteAll(b *batch) {
	for _, it := range b.items {
		if it.line != nil {
			s.excite(it.line)
		}
	}
	for _, x := range b.followed {
		s.excite(x.line)
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
