package partition

import (
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of waiting.
const (
	waitersMax    = 1 << 16 // lock requests that wait in a group; those of one entity at most as many as are free
	waitQueuesMax = 1 << 16 // wait queues remembered; above it those without waiters are dropped
	receiversMax  = 1 << 16 // receivers remembered; above it all are dropped, at the cost of one lock command each
)

// waitQueues is the part of the proposer that holds the lock requests that wait for messages. Nothing of it
// is in the log: a new leader starts without waiters, and the routers ask again.
type waitQueues struct {
	queues        map[waitKey]*waitQueue
	topics        map[fsm.EntityID]*topicWaiters // wait queues at subscriptions, by topic
	receivers     map[receiverKey]uint64         // serial of the last lock proposed
	proposeNow    []*entityWaiters               // entities with waiters to be proposed whether or not messages are ready, by turns
	proposeCount  int                            // of these waiters
	ready         []*waitQueue                   // wait queues that may have messages for a waiter
	sessionQueues int                            // number of queues that are not of kind waitMessages
	waiterCount   int                            // waiters in queues and in proposeNow
	ofEntities    map[fsm.EntityID]*entityWaiters
	lastArrival   uint64 // arrival number of the newest waiter
}

// entityWaiters counts the waiters of one entity, with its sub-queues and sessions.
type entityWaiters struct {
	waiters, queues int
	proposeNow      []*waiter // those to be proposed whether or not messages are ready, by arrival
}

type receiverKey struct{ incarnation, receiver uint64 }

// speculation counts what the sends of one entry to a topic may bring to one wait queue.
type speculation struct {
	queue    *waitQueue
	expected int
	hasLock  bool // the entry has a lock for it
	matched  bool // and one of its locks found a message
}

func (s *waitQueues) reset() {
	*s = waitQueues{
		queues:    make(map[waitKey]*waitQueue),
		topics:    make(map[fsm.EntityID]*topicWaiters),
		receivers: make(map[receiverKey]uint64),

		ofEntities: make(map[fsm.EntityID]*entityWaiters),
	}
}

// countWaiters adds n to the number of waiters.
func (s *waitQueues) countWaiters(l *waitQueue, n int) {
	s.waiterCount += n
	l.entity.waiters += n
}

// mayWait reports whether one more request may wait in l: the requests of one entity may be as many as are free, so that one
// entity with very many receivers leaves places for the others.
func (s *waitQueues) mayWait(l *waitQueue) bool { return l.entity.waiters < waitersMax-s.waiterCount }

// Lock waits at the leader until messages are ready, and locks them. Done is called once, under the rules of
// Submit; when the wait ends at Until or by cancel, it gets the outcome Done without deliveries. After a
// cancel that comes too late, Done gets the locked messages. The request is not in the log while it waits:
// when leadership is lost it is Refused, or Unknown when its command was proposed already.
//
// A request whose Serial was proposed before, or whose receiver id this leader has not seen, is proposed at
// once: it may be a retry whose answer the machine remembers.
func (g *Group) Lock(r LockRequest) (cancel func()) {
	p := &g.proposer
	early := false
	if r.Accept != nil {
		r.Lock.Max = 1
		early = g.isEarly(fsm.LevelOf(*r.Accept))
	}
	p.mu.Lock()
	var l *waitQueue
	if p.leading {
		l = p.queueWithTopic(r.waitKey())
	}
	refused := Answer{Outcome: Refused}
	busy := early || l != nil && !p.mayWait(l)
	if p.leading && busy {
		refused.Result.Code = fsm.ServerBusy
	}
	if !p.leading || busy {
		p.mu.Unlock()
		r.Done(refused)
		return func() {}
	}
	l.setSessionEpoch(r.Lock.Session.Epoch)
	p.lastArrival++
	w := &waiter{LockRequest: r, queue: l, arrival: p.lastArrival}
	last, seen := p.receivers[receiverKey{r.Header.Incarnation, r.Header.Receiver}]
	// A request without time to wait (a draining link) gets what is ready. If it is known that nothing is
	// ready, no command is needed.
	hurried := !time.Now().Before(r.Until)
	again := !seen || r.Header.Serial <= last
	if hurried && !again && w.queue.countKnown && w.queue.estimate() <= 0 {
		p.mu.Unlock()
		r.Done(Answer{Outcome: Done})
		return func() {}
	}
	w.proposeNow = hurried || again
	if w.proposeNow {
		p.addProposeNow(w)
	} else {
		w.queue.insert(w)
		p.markReady(w.queue)
	}
	p.countWaiters(w.queue, 1)
	w.timer = time.AfterFunc(time.Until(r.Until), func() { p.cancelWait(w) })
	wake := p.hasLocksToPropose() && p.canPropose()
	p.mu.Unlock()
	if wake {
		p.notify()
	}
	return func() { p.cancelWait(w) }
}

// cancelWait ends the wait of w, unless its lock is in flight or must be proposed first.
func (p *proposer) cancelWait(w *waiter) {
	p.mu.Lock()
	waited := w.state == waiterPending && !w.proposeNow
	if !waited && w.state != waiterDone {
		w.expired = true
	}
	if waited {
		w.state = waiterDone
		p.countWaiters(w.queue, -1)
		w.queue.remove(w)
	}
	p.mu.Unlock()
	if waited {
		w.answer(Answer{Outcome: Done})
	}
}

// addProposeNow adds a waiter to be proposed whether or not messages are ready. mu is held.
func (s *waitQueues) addProposeNow(w *waiter) {
	of := w.queue.entity
	if len(of.proposeNow) == 0 {
		s.proposeNow = append(s.proposeNow, of)
	}
	of.proposeNow = append(of.proposeNow, w)
	s.proposeCount++
	w.queue.proposeNowCount++
}

// takeProposeNow removes the next of them: entities take turns, so that the first requests of one with very many receivers do
// not delay those of others. mu is held.
func (s *waitQueues) takeProposeNow() *waiter {
	of := s.proposeNow[0]
	s.proposeNow[0], s.proposeNow = nil, s.proposeNow[1:]
	w := of.proposeNow[0]
	of.proposeNow[0], of.proposeNow = nil, of.proposeNow[1:]
	if len(of.proposeNow) > 0 {
		s.proposeNow = append(s.proposeNow, of)
	}
	s.proposeCount--
	w.queue.proposeNowCount--
	return w
}

// queueFor returns the queue of key and creates it if needed. Called with mu held, like all below.
func (s *waitQueues) queueFor(key waitKey) *waitQueue {
	l := s.queues[key]
	if l == nil {
		if len(s.queues) >= waitQueuesMax {
			for k, l := range s.queues {
				if l.waiters.Len()+l.proposeNowCount+l.requested == 0 && l.expected == 0 && !l.inReadyList {
					s.remove(k)
				}
			}
			s.rebuildTopics()
		}
		of := s.ofEntities[key.Entity]
		if of == nil {
			of = &entityWaiters{}
			s.ofEntities[key.Entity] = of
		}
		of.queues++
		l = &waitQueue{waitKey: key, entity: of}
		s.queues[key] = l
		if key.kind != waitMessages {
			s.sessionQueues++
		}
	}
	return l
}

func (s *waitQueues) remove(key waitKey) {
	if of := s.queues[key].entity; of.queues == 1 {
		delete(s.ofEntities, key.Entity)
	} else {
		of.queues--
	}
	delete(s.queues, key)
	if key.kind != waitMessages {
		s.sessionQueues--
	}
}

// markReady adds l to the ready list if it may have messages for its waiters.
func (s *waitQueues) markReady(l *waitQueue) {
	if !l.inReadyList && l.waiters.Len() > 0 && l.estimate() > 0 {
		l.inReadyList = true
		s.ready = append(s.ready, l)
	}
}

// hasLocksToPropose reports whether a lock should be added to an entry.
func (s *waitQueues) hasLocksToPropose() bool { return s.proposeCount > 0 || len(s.ready) > 0 }

// countSends counts the messages that a command of the entry being composed will make ready.
func (p *proposer) countSends(b *batch, info *fsm.CommandInfo, it *item) {
	switch {
	case len(p.queues) == 0:
	case info.Kind == fsm.KindPutEntity || info.Kind == fsm.KindDropEntity:
		it.changedEntity, it.isDrop = info.Entity, info.Kind == fsm.KindDropEntity
	case info.Kind.Brings() && info.Entity != 0:
		l := p.queues[waitKey{Address: fsm.Address{Entity: info.Entity}}]
		if l == nil {
			p.speculate(b, info.Entity, info.Messages)
			return
		}
		it.queue, it.expected = l, info.Messages
		l.expected += info.Messages
		p.markReady(l)
	}
}

// addLocks adds locks of waiters to the entry, right behind the sends.
func (p *proposer) addLocks(b *batch) {
	if p.g.bodyReader.backlog() > bodyReadBytesMax || p.holdsGrants() {
		return
	}
	most := entryLocksMin
	if len(p.ready) > 0 { // otherwise new receivers of one entity could take all places that are left for locks
		most /= 2
	}
	for n := 0; p.proposeCount > 0 && n < most && len(b.items) < entryCommandsMax; n++ {
		w := p.takeProposeNow()
		there := int(w.Lock.Max)
		if w.queue.countKnown {
			there = w.queue.estimate()
		}
		each := fairShare(there, w.queue.waiters.Len()+w.queue.proposeNowCount+1)
		p.addLock(b, w, min(int(w.Lock.Max), max(1, each)))
	}
	for i, l := range p.ready {
		n := l.estimate()
		if !l.countKnown && n > 0 && l.waiters.Len() > 0 {
			n = int(waiterAt(l.waiters.Front()).Lock.Max)
		}
		each := fairShare(n, l.waiters.Len())
		for l.waiters.Len() > 0 && n > 0 {
			if len(b.items) >= entryCommandsMax {
				p.ready = append(slices.Delete(p.ready, 0, i+1), l) // the others come first in the next entry
				return
			}
			w := l.next()
			l.remove(w)
			give := min(each, int(w.Lock.Max))
			if !l.countKnown {
				give = int(w.Lock.Max)
			}
			n -= give
			p.addLock(b, w, give)
			if !l.countKnown {
				break
			}
		}
		l.inReadyList = false
	}
	clear(p.ready)
	p.ready = p.ready[:0]
}

// fairShare returns the share of each of n waiters, rounded up.
func fairShare(there, n int) int {
	if n == 0 || there <= 0 {
		return 0
	}
	return (there + n - 1) / n
}

// addLock adds one lock to the entry.
func (p *proposer) addLock(b *batch, w *waiter, give int) {
	w.state, w.requested = waiterInFlight, give
	w.queue.requested += give
	p.countWaiters(w.queue, -1)
	key := receiverKey{w.Header.Incarnation, w.Header.Receiver}
	if _, seen := p.receivers[key]; !seen && len(p.receivers) >= receiversMax {
		clear(p.receivers)
	}
	p.receivers[key] = w.Header.Serial
	if w.Accept != nil {
		b.add(fsm.AppendCommand(nil, w.Header, *w.Accept), item{waiter: w, queue: w.queue})
		return
	}
	lock := w.Lock
	lock.Max = uint32(give)
	b.add(fsm.AppendCommand(nil, w.Header, lock), item{waiter: w, queue: w.queue})
}

// revertCounts reverts the counts of an entry that failed.
func (p *proposer) revertCounts(b *batch) {
	for _, it := range b.items {
		if it.waiter != nil {
			it.waiter.state = waiterDone
			it.queue.requested -= it.waiter.requested
			p.markReady(it.queue)
		} else if it.queue != nil {
			it.queue.expected -= it.expected
		}
	}
	p.removeSpeculations(b)
}

// updateWaitQueues updates the counts of the queues from an applied entry. Waiters whose locks found nothing
// go back to their positions; expired ones are returned in over.
func (p *proposer) updateWaitQueues(b *batch, results []fsm.Result) (over []*waiter) {
	var back []*waiter
	for i, it := range b.items {
		w := it.waiter
		if w == nil {
			if it.queue != nil {
				it.queue.expected -= it.expected
			}
			if it.isDrop {
				p.invalidateAll(it.changedEntity)
			} else if it.changedEntity != 0 {
				p.invalidate(it.changedEntity)
			}
			continue
		}
		l := it.queue
		l.requested -= w.requested
		found := len(results[i].Deliveries)
		if results[i].Session.Epoch != 0 {
			found = 1
		}
		b.recordLock(w, found)
		switch {
		case found > 0 && w.proposeNow:
			l.countKnown = false // a remembered answer says nothing about what is ready
		case found > 0:
			l.ready = max(0, l.ready-found)
		case results[i].Code == fsm.OK:
			l.ready, l.countKnown = 0, true
		}
		w.state = waiterDone
		if code := results[i].Code; code == fsm.EntityNotFound || code == fsm.EntityDisabled || code == fsm.NotAllowed {
			over = append(over, p.refuseWaiters(l, code)...) // it was deleted, is disabled, or forwards
		}
		if found > 0 || results[i].Code != fsm.OK {
			continue
		}
		if w.expired {
			over = append(over, w)
			continue
		}
		w.state, w.proposeNow = waiterPending, false
		p.countWaiters(w.queue, 1)
		back = append(back, w)
	}
	p.removeSpeculations(b)
	for _, w := range slices.Backward(back) {
		w.queue.insert(w)
	}
	return over
}

// refuseWaiters ends the waits at an address that no longer delivers: the error of one lock applies to all
// waiters there. Later requests are proposed again.
func (p *proposer) refuseWaiters(l *waitQueue, code fsm.Code) []*waiter {
	var all []*waiter
	for l.waiters.Len() > 0 {
		w := waiterAt(l.waiters.Front())
		l.remove(w)
		all = append(all, w)
	}
	l.countKnown = false
	for _, w := range all {
		w.state, w.refusal = waiterDone, code
		p.countWaiters(l, -1)
	}
	return all
}

// invalidate discards the counts of a queue that was changed, deleted, or has deleted itself: the first
// waiter finds out, for all.
func (s *waitQueues) invalidate(id fsm.EntityID) {
	for _, sub := range []fsm.SubQueue{fsm.MainQueue, fsm.DeadLetterQueue, fsm.TransferDeadLetterQueue} {
		if l := s.queues[waitKey{Address: fsm.Address{Entity: id, Sub: sub}}]; l != nil {
			l.countKnown = false
			s.markReady(l)
		}
	}
	if s.sessionQueues == 0 {
		return
	}
	for _, l := range s.queues {
		if l.kind != waitMessages && l.Entity == id {
			l.countKnown = false
			s.markReady(l)
		}
	}
}

// observeEffect updates the queue of an address from an effect of apply.
func (s *waitQueues) observeEffect(e fsm.Effect) *waitQueue {
	l := s.queueOfEffect(e)
	switch {
	case l == nil:
	case e.Kind == fsm.EffectSessionLost:
		l.countKnown = false // the next lock of its waiters finds out
	default:
		l.ready, l.countKnown = int(min(e.Ready, 1<<30)), true
		s.setLastMatched(l, true)
	}
	return l
}

// queueOfEffect returns the queue that an effect is about, nil when no request has waited there.
func (s *waitQueues) queueOfEffect(e fsm.Effect) *waitQueue {
	if e.Kind == fsm.EffectSession {
		return s.queues[waitKey{Address: e.Address, kind: waitSession}]
	}
	if s.sessionQueues > 0 {
		if l := s.queues[waitKey{Address: e.Address, kind: waitSessionMessages, session: e.Session}]; l != nil {
			return l
		}
	}
	return s.queues[waitKey{Address: e.Address}]
}

// markAllReady calls markReady for the queues of an applied entry.
func (s *waitQueues) markAllReady(b *batch) {
	for _, it := range b.items {
		if it.queue != nil {
			s.markReady(it.queue)
		}
	}
	for _, x := range b.speculations {
		s.markReady(x.queue)
	}
}

// takeAllWaiters empties the queues and returns their waiters.
func (s *waitQueues) takeAllWaiters() []*waiter {
	var all []*waiter
	for _, of := range s.proposeNow {
		all = append(all, of.proposeNow...)
	}
	for _, l := range s.queues {
		for e := l.waiters.Front(); e != nil; e = e.Next() {
			all = append(all, waiterAt(e))
		}
	}
	for _, w := range all {
		w.state = waiterDone
	}
	return all
}
