package partition

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/lanes"
	"github.com/peeklock/peeklock/test/kit"
)

// openSingle starts a member with one group and one queue, entity 1.
func openSingle(t *testing.T, tune func(*Config)) (*member, *Group, *asker) {
	t.Helper()
	return startSingle(t, newMembers(t, 1, tune))
}

// startSingle starts the only member, with one group and one queue, entity 1.
func startSingle(t *testing.T, ms []*member) (*member, *Group, *asker) {
	t.Helper()
	ms[0].start(1)
	_, g := leader(t, ms, 1)
	a := &asker{origin: 7}
	must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
	return ms[0], g, a
}

// waitHere starts n lock requests and returns when they wait.
func waitHere(t *testing.T, g *Group, n int, max uint32, until time.Duration) ([]chan Answer, []func()) {
	t.Helper()
	var answers []chan Answer
	var cancels []func()
	standing := func() int {
		g.proposer.mu.Lock()
		defer g.proposer.mu.Unlock()
		return g.proposer.queueFor(waitKey{Address: fsm.Address{Entity: 1}}).waiters.Len()
	}
	for i := range n {
		got := make(chan Answer, 1)
		h := fsm.Header{Incarnation: 8, Receiver: uint64(i + 1), Serial: 1, Low: 1}
		cancels = append(cancels, g.Lock(LockRequest{
			Header: h, Lock: lockOf(1, max), Until: time.Now().Add(until),
			Done: func(a Answer) { got <- a },
		}))
		answers = append(answers, got)
		// or has ended its wait, when this goroutine was delayed for longer
		kit.Eventually(t, "the request stands in line", func() bool { return standing() == i+1 || len(got) > 0 })
	}
	return answers, cancels
}

// The messages of one send are shared among the waiters, in the entry of the send.
func TestWaitersShareTheMessagesOfAnEntry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		answers, _ := waitHere(t, g, 4, 1000, time.Minute)
		before := g.Status().Applied
		must(t, g, a.next(), send(1, body(0), body(1), body(2), body(3), body(4), body(5), body(6), body(7), body(8), body(9)))
		var got []int
		for _, c := range answers {
			got = append(got, len(await1(t, c).Result.Deliveries))
		}
		if diff := cmp.Diff([]int{3, 3, 3, 1}, got); diff != "" {
			t.Error(diff)
		}
		if after := g.Status().Applied; after != before+1 {
			t.Errorf("it took %d entries", after-before)
		}
	})
}

// The oldest waiters are served first, and remaining messages go to the next.
func TestWaitersAreServedInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		answers, _ := waitHere(t, g, 3, 1, time.Minute)
		for i := range 3 {
			must(t, g, a.next(), send(1, body(i)))
			got := await1(t, answers[i])
			if len(got.Result.Deliveries) != 1 || string(got.Result.Deliveries[0].Payload) != string(body(i)) {
				t.Fatalf("waiter %d: %+v", i, got)
			}
		}
	})
}

func TestWaitEndsAtItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		answers, _ := waitHere(t, g, 1, 1, time.Second)
		if got := await1(t, answers[0]); got.Outcome != Done || len(got.Result.Deliveries) != 0 {
			t.Errorf("%+v", got)
		}
		if n := g.Status().Waiting; n != 0 {
			t.Errorf("%d still wait", n)
		}
		// The message is there for the next receiver.
		must(t, g, a.next(), send(1, body(1)))
		r := &asker{origin: 9, receiver: 1}
		if got := lock(t, g, r.next(), lockOf(1, 1), time.Minute); len(got.Result.Deliveries) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// When a queue is deleted, all its waiters are told, not only later requests.
func TestWaitersAreToldThatTheQueueIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		answers, _ := waitHere(t, g, 5, 1, time.Minute)
		before := g.Status().Applied
		must(t, g, a.next(), fsm.DropEntity{Entity: 1})
		for i, c := range answers {
			if got := await1(t, c); got.Outcome != Done || got.Result.Code != fsm.EntityNotFound {
				t.Errorf("waiter %d: %+v", i, got)
			}
		}
		s := g.Status()
		if s.Waiting != 0 {
			t.Errorf("%d still wait", s.Waiting)
		}
		if s.Applied > before+3 {
			t.Errorf("it took %d entries to tell them", s.Applied-before)
		}
	})
}

// A change of settings that does not stop receivers costs one lock, and every waiter keeps its position.
func TestWaitersSurviveAChangeOfSettings(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		answers, _ := waitHere(t, g, 2, 1, time.Minute)
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 2, Settings: settings()})
		for i := range 2 {
			must(t, g, a.next(), send(1, body(i)))
			if got := await1(t, answers[i]); len(got.Result.Deliveries) != 1 || string(got.Result.Deliveries[0].Payload) != string(body(i)) {
				t.Fatalf("waiter %d: %+v", i, got)
			}
		}
	})
}

func TestCancelledWaitGetsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, _ := openSingle(t, nil)
		answers, cancels := waitHere(t, g, 2, 1, time.Minute)
		cancels[0]()
		cancels[0]()
		if got := await1(t, answers[0]); got.Outcome != Done || len(got.Result.Deliveries) != 0 {
			t.Errorf("%+v", got)
		}
		if n := g.Status().Waiting; n != 1 {
			t.Errorf("%d wait", n)
		}
		cancels[1]()
		await1(t, answers[1])
	})
}

// A steady receiver costs one entry per message and no empty ones.
func TestSteadyReceiverCostsNoEmptyEntries(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		r := &asker{origin: 9, receiver: 1}
		next := func() chan Answer {
			got := make(chan Answer, 1)
			g.Lock(LockRequest{Header: r.next(), Lock: lockOf(1, 10), Until: time.Now().Add(time.Minute), Done: func(a Answer) { got <- a }})
			return got
		}
		got := next()
		kit.Eventually(t, "it waits", func() bool { return g.Status().Waiting == 1 })
		var before uint64
		for i := range 21 {
			if i == 1 {
				before = g.Status().Applied
			}
			must(t, g, a.next(), send(1, body(i)))
			if x := await1(t, got); len(x.Result.Deliveries) != 1 {
				t.Fatalf("%+v", x)
			}
			got = next()
		}
		if n := g.Status().Applied - before; n > 22 {
			t.Errorf("20 messages took %d entries", n)
		}
	})
}

// Messages that a pulse returns go to the waiters.
func TestExpiredLockIsRedeliveredToAWaiter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		skew := time.Duration(0)
		_, g, a := openSingle(t, func(c *Config) {
			c.Now = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(skew)
			}
		})
		must(t, g, a.next(), send(1, body(1)))
		r := &asker{origin: 9, receiver: 1}
		first := lock(t, g, r.next(), lockOf(1, 1), time.Minute)
		answers, _ := waitHere(t, g, 1, 1, time.Minute)
		mu.Lock()
		skew = 29900 * time.Millisecond // just before the lock ends
		mu.Unlock()
		must(t, g, a.next(), fsm.Pulse{})
		again := await1(t, answers[0])
		if len(again.Result.Deliveries) != 1 || again.Result.Deliveries[0].FailedDeliveries != 1 ||
			again.Result.Deliveries[0].Lock.Sequence != first.Result.Deliveries[0].Lock.Sequence {
			t.Errorf("%+v", again)
		}
	})
}

// A repeated request is proposed at once: the machine remembers the answer, and no message need be ready.
func TestRepeatedLockIsAnsweredFromMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		must(t, g, a.next(), send(1, body(1)))
		r := &asker{origin: 9, receiver: 1}
		h := r.next()
		first := lock(t, g, h, lockOf(1, 5), time.Minute)
		again := lock(t, g, h, lockOf(1, 5), time.Minute)
		if diff := cmp.Diff(first.Result, again.Result); diff != "" || len(first.Result.Deliveries) != 1 {
			t.Error(diff)
		}
	})
}

func TestWaitersAndQueuesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, _ := openSingle(t, nil)
		p := &g.proposer
		p.mu.Lock()
		p.waiterCount = waitersMax
		p.mu.Unlock()
		got := lock(t, g, fsm.Header{Incarnation: 1, Receiver: 1, Serial: 1}, lockOf(1, 1), time.Minute)
		if got.Outcome != Refused || got.Result.Code != fsm.ServerBusy {
			t.Errorf("%+v", got)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiterCount = 0
		if len(p.ofEntities) != 1 {
			t.Errorf("waiters of %d entities", len(p.ofEntities))
		}
		for i := range waitQueuesMax + 10 {
			p.queueFor(waitKey{Address: fsm.Address{Entity: fsm.EntityID(i)}})
			if len(p.queues) > waitQueuesMax {
				t.Fatalf("%d lines", len(p.queues))
			}
		}
		if len(p.ofEntities) > waitQueuesMax {
			t.Errorf("waiters of %d entities are counted", len(p.ofEntities))
		}
	})
}

// One entity gets at most half of the places for requests that wait, two a third each, so that there is a place for a
// receiver of another entity.
func TestEntitiesShareThePlacesOfWaiters(t *testing.T) {
	t.Parallel()
	var s waitQueues
	s.reset()
	at := func(id fsm.EntityID, kind waitKind, session string) *waitQueue {
		return s.queueFor(waitKey{Address: fsm.Address{Entity: id}, kind: kind, session: session})
	}
	fill := func(queues ...*waitQueue) {
		for more := true; more; {
			more = false
			for _, l := range queues {
				if s.mayWait(l) {
					s.countWaiters(l, 1)
					more = true
				}
			}
		}
	}
	one, ofSession, other, next := at(1, waitMessages, ""), at(1, waitSessionMessages, "s"), at(2, waitMessages, ""), at(3, waitMessages, "")
	fill(one, ofSession)
	if n := one.entity.waiters; n != waitersMax/2 || ofSession.entity.waiters != n {
		t.Errorf("one entity has %d waiters", n)
	}
	fill(other)
	if n := other.entity.waiters; n < waitersMax/4 || !s.mayWait(next) || s.mayWait(one) {
		t.Errorf("a second entity has %d waiters; a third may wait: %v", n, s.mayWait(next))
	}
}

// TestFirstRequestsTakeTurns: very many receivers of one entity that ask for the first time take few places in an entry, and a
// receiver of another entity does not wait behind them.
func TestFirstRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	p := gatheringProposer(t)
	ask := func(at fsm.EntityID, receiver uint64) {
		p.g.Lock(LockRequest{Header: fsm.Header{Receiver: receiver, Serial: 1}, Lock: fsm.LockMessages{Address: fsm.Address{Entity: at}, Max: 1}, Until: time.Now().Add(time.Hour), Done: func(Answer) {}})
	}
	const many, other = 1000, 7
	for i := range uint64(many) {
		ask(1, i+1)
	}
	ask(other, many+1)
	b := p.compose(time.Now())
	if len(b.items) != entryLocksMin {
		t.Errorf("got %d locks in the entry, want %d", len(b.items), entryLocksMin)
	}
	if got := b.items[1].waiter.queue.Entity; got != other {
		t.Errorf("the second lock is at entity %d, want %d", got, other)
	}
	if p.proposeCount != many+1-entryLocksMin || p.compose(time.Now()) == nil {
		t.Errorf("%d requests are left, want %d and an entry with the next of them", p.proposeCount, many+1-entryLocksMin)
	}
}

// TestWaitersComeBackNearTheEnds: a waiter whose lock has found nothing gets its position back, and few of the others are looked at.
func TestWaitersComeBackNearTheEnds(t *testing.T) {
	t.Parallel()
	const many, served = 10_000, 10
	var l waitQueue
	waiters := make([]*waiter, many)
	for i := range waiters {
		waiters[i] = &waiter{queue: &l, arrival: uint64(i)}
		if steps := l.insert(waiters[i]); steps > 1 {
			t.Fatalf("the newest waiter was inserted in %d steps, want 1", steps)
		}
	}
	for _, of := range [][]*waiter{waiters[:served], waiters[many-served:], waiters[many/2 : many/2+1]} {
		for _, w := range of {
			l.remove(w)
		}
		most := served + 1
		if of[0] == waiters[many/2] {
			most = many
		}
		for _, w := range of {
			if steps := l.insert(w); steps > most {
				t.Errorf("waiter %d was inserted in %d steps, want at most %d", w.arrival, steps, most)
			}
		}
	}
	for i, w := range waiters {
		if got := l.next(); got != w {
			t.Fatalf("waiter %d is in position %d", got.arrival, i)
		}
		l.remove(w)
	}
}

// Submissions over the limits are refused and never dropped.
func TestOverloadIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		g.proposer.mu.Lock()
		g.proposer.transferring = true // nothing leaves the queue
		g.proposer.mu.Unlock()
		var refused, done int
		var mu sync.Mutex
		var wg sync.WaitGroup
		n := 70
		big := make([]byte, 1<<20)
		for range n {
			wg.Add(1)
			g.Submit(fsm.AppendCommand(nil, a.next(), send(1, big[:1<<20-100])), func(x Answer) {
				defer wg.Done()
				mu.Lock()
				defer mu.Unlock()
				switch {
				case x.Outcome == Refused && x.Result.Code == fsm.ServerBusy:
					refused++
				case x.Outcome == Done && x.Result.Code == fsm.OK:
					done++
				default:
					t.Errorf("%+v", x)
				}
			})
		}
		if got := g.Status().Queued; got > lanes.BytesMax>>20+1 {
			t.Errorf("%d queued", got)
		}
		g.proposer.mu.Lock()
		g.proposer.transferring = false
		g.proposer.mu.Unlock()
		g.proposer.notify()
		wg.Wait()
		if refused == 0 || done == 0 || refused+done != n {
			t.Errorf("%d refused, %d done", refused, done)
		}
	})
}
