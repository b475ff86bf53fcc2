package partition

import (
	"container/list"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// waitKey identifies a wait queue by what its waiters wait for.
type waitKey struct {
	fsm.Address
	kind    waitKind
	session string // waitSessionMessages only
}

type waitKind uint8

const (
	waitMessages        waitKind = iota // for messages of an address
	waitSessionMessages                 // for messages of a session that the receiver holds
	waitSession                         // for a session that no receiver holds
)

// waitKey returns the key of the queue in which a request waits.
func (r *LockRequest) waitKey() waitKey {
	switch {
	case r.Accept != nil:
		return waitKey{Address: fsm.Address{Entity: r.Accept.Entity}, kind: waitSession}
	case r.Lock.Session.Epoch != 0:
		return waitKey{Address: r.Lock.Address, kind: waitSessionMessages, session: r.Lock.Session.ID}
	}
	return waitKey{Address: r.Lock.Address}
}

// waitQueue holds the lock requests that wait for the same: messages of an address or of a session, or a
// session to accept.
//
//	what a lock proposed now would find = ready + expected - requested
type waitQueue struct {
	waitKey
	waiters         list.List // by arrival
	entity          *entityWaiters
	proposeNowCount int    // its waiters in waitQueues.proposeNow
	ready           int    // messages ready as of the last apply, if countKnown
	countKnown      bool   // false: only a lock command can tell the number
	expected        int    // messages sent to it in entries in flight
	requested       int    // messages requested by locks in entries in flight
	inReadyList     bool   // is in waitQueues.ready
	sessionEpoch    uint64 // epoch of the session lock of the last request; session queues only

	topicKnown bool // topic is set from the machine
	// topic is the entity whose sends may make messages ready here, as only the machine can decide: the topic
	// of a subscription, the entity itself for queues that hand out sessions, else 0.
	topic fsm.EntityID
	// lastMatched is set when the last evaluated message of the topic matched this subscription, as far as is
	// known. Main queues of subscriptions only.
	lastMatched bool
}

// estimate returns the number of messages that a lock proposed now would find. If the number is unknown, one
// lock at a time finds out.
func (l *waitQueue) estimate() int {
	switch {
	case l.countKnown:
		return l.ready + l.expected - l.requested
	case l.requested > 0:
		return 0
	}
	return 1
}

// setSessionEpoch records the epoch of the session lock under which a request waits. Effects report on a
// session only while it is held, so the count from an earlier lock is invalid: messages may have arrived or
// been returned before the next lock.
func (l *waitQueue) setSessionEpoch(epoch uint64) {
	if l.sessionEpoch != epoch {
		l.sessionEpoch, l.countKnown = epoch, false
	}
}

// next returns the waiter that is served next: messages go to the oldest waiter, sessions to the newest, because a session is held
// for long, and the client that came last is surely alive.
func (l *waitQueue) next() *waiter {
	if l.kind == waitSession {
		return waiterAt(l.waiters.Back())
	}
	return waiterAt(l.waiters.Front())
}

func waiterAt(e *list.Element) *waiter { return e.Value.(*waiter) } //nolint:forcetypeassert // insert puts nothing else in

// insert adds a waiter at its position by arrival, which is near one of the ends: those that were served last come back. It returns
// the number of waiters that it looked at.
func (l *waitQueue) insert(w *waiter) (steps int) {
	for older, newer := l.waiters.Front(), l.waiters.Back(); older != nil; older, newer = older.Next(), newer.Prev() {
		steps++
		if waiterAt(older).arrival > w.arrival {
			w.place = l.waiters.InsertBefore(w, older)
			return steps
		}
		if waiterAt(newer).arrival < w.arrival {
			w.place = l.waiters.InsertAfter(w, newer)
			return steps
		}
	}
	w.place = l.waiters.PushBack(w)
	return steps
}

// remove removes a waiter.
func (l *waitQueue) remove(w *waiter) {
	l.waiters.Remove(w.place)
	w.place = nil
}

// waiter is one waiting lock request.
type waiter struct {
	LockRequest

	queue      *waitQueue
	place      *list.Element // in queue.waiters; nil: it is not there
	timer      *time.Timer
	requested  int    // messages requested by the lock in flight
	arrival    uint64 // by arrival
	proposeNow bool
	// state, expired and refusal are guarded by proposer.mu.
	state   waiterState
	expired bool     // it timed out or was cancelled while its lock was in flight
	refusal fsm.Code // why requests cannot wait at this address
	once    sync.Once
}

type waiterState uint8

const (
	waiterPending waiterState = iota
	waiterInFlight
	waiterDone
)

// answer answers the request, once.
func (w *waiter) answer(a Answer) {
	w.once.Do(func() {
		if w.timer != nil {
			w.timer.Stop()
		}
		w.Done(a)
	})
}
