package work

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// newShares is how many times the share of one account those have together that have not been served yet.
const newShares = 16

// Limiter limits the units per second of all its accounts together. All methods may be called from any
// goroutine.
type Limiter struct {
	mu       sync.Mutex
	bucket   bucket
	virtual  float64 // start tag of the work that began last
	arrivals uint64  // work that has waited so far
	keys     map[key]*flow
	waiting  flows       // with work of accounts that have been served before
	fresh    waiters     // of those that have not; all of it is one flow, so that new accounts cannot starve old ones
	freshTag float64     // start tag of the next of fresh
	timer    *time.Timer // runs serve when there are tokens again; nil while nothing waits
	ended    endedAccounts
}

// NewLimiter returns a Limiter of perSecond units per second; burst units may begin without delay.
func NewLimiter(perSecond, burst int) *Limiter {
	return &Limiter{bucket: newBucket(perSecond, burst)}
}

// Account limits one connection. It is for one goroutine. Its zero value has no limit.
type Account struct {
	limiter *Limiter
	owner   Owner
	bucket  bucket
	flow    *flow   // of its key
	served  bool    // it has begun work; the mutex of the Limiter guards it and end
	end     float64 // end tag of its last work, within the flow
}

// key is a client on however many connections.
type key struct {
	namespace uint32
	name      string
}

// flow is the work of all accounts of a key; that of a connection without a key is its own. The Limiter serves the flow that has
// received the least, and that serves its account that has received the least. The mutex of the Limiter guards it.
type flow struct {
	accounts   int
	waiting    waiters
	virtual    float64 // start tag, within the flow, of its work that began last
	start, end float64 // start tag of its next work, while some waits, and end tag of its last one
	index      int     // among the flows that wait; meaningless while it does not
}

// Open returns an Account of perSecond units per second, of which burst may begin without delay. If an Account of the
// same owner has ended, the new one begins with what that has left of its burst. Rates and bursts of an owner are the
// same each time.
func (l *Limiter) Open(owner Owner, perSecond, burst int) Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, found := l.ended.take(owner)
	if !found {
		b = newBucket(perSecond, burst)
	}
	return Account{limiter: l, owner: owner, bucket: b, flow: l.flowOf(owner)}
}

// flowOf returns the flow of a new account. mu is held.
func (l *Limiter) flowOf(owner Owner) *flow {
	of := key{owner.Namespace, owner.Key}
	f := l.keys[of]
	if f == nil {
		f = &flow{}
		if l.keys == nil {
			l.keys = make(map[key]*flow)
		}
		if of.name != "" {
			l.keys[of] = f
		}
	}
	f.accounts++
	return f
}

// Close ends the Account: nothing waits for it, now or later.
func (a *Account) Close() {
	if a.limiter == nil {
		return
	}
	a.limiter.mu.Lock()
	defer a.limiter.mu.Unlock()
	a.limiter.ended.put(a.owner, a.bucket)
	if a.flow.accounts--; a.flow.accounts == 0 && a.owner.Key != "" {
		delete(a.limiter.keys, key{a.owner.Namespace, a.owner.Key})
	}
}

// Wait waits until work of cost units may begin: until the Account and the Limiter have tokens. Work that
// costs more than there are delays what follows. Wait returns early when ctx or stop ends.
func (a *Account) Wait(ctx context.Context, stop <-chan struct{}, cost int) {
	if a.limiter == nil {
		return
	}
	a.wait(ctx, stop, a.charge(cost), cost)
}

// charge takes the tokens of work from the account, and returns how long the work has to wait for those that were owed before.
func (a *Account) charge(cost int) time.Duration {
	a.bucket.refill()
	delay := a.bucket.untilPaid()
	a.bucket.tokens -= float64(cost)
	return delay
}

// wait waits for what the account owes, and then for the Limiter.
func (a *Account) wait(ctx context.Context, stop <-chan struct{}, delay time.Duration, cost int) {
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		case <-stop:
			return
		}
	}
	w := a.limiter.request(a, float64(cost))
	if w == nil {
		return
	}
	select {
	case <-w.begun:
	case <-ctx.Done():
		a.limiter.forget(w)
	case <-stop:
		a.limiter.forget(w)
	}
}

// request begins work at once if possible, and returns nil; otherwise it returns a waiter.
func (l *Limiter) request(a *Account, cost float64) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bucket.refill()
	w := &waiter{account: a, queue: &a.flow.waiting, start: max(a.flow.virtual, a.end), cost: cost, arrival: l.arrivals, begun: make(chan struct{})}
	if !a.served {
		// The tag of new work is that of its whole queue, whose order is that of arrival.
		w.queue, w.start = &l.fresh, 0
		if len(l.fresh) == 0 {
			l.freshTag = max(l.freshTag, l.virtual)
		}
	}
	l.arrivals++
	alone := len(l.waiting)+len(l.fresh) == 0
	heap.Push(w.queue, w)
	switch f := a.flow; {
	case !a.served:
	case len(f.waiting) == 1:
		f.start = max(l.virtual, f.end)
		heap.Push(&l.waiting, f)
	default: // its next work may be another
		heap.Fix(&l.waiting, f.index)
	}
	if alone && l.bucket.tokens > 0 {
		l.begin()
		return nil
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.untilTokens(), l.serve)
	}
	return w
}

// begin begins the work whose turn it is. Some work waits.
func (l *Limiter) begin() {
	var w *waiter
	var start float64
	if len(l.waiting) == 0 || len(l.fresh) > 0 && l.freshTag <= l.waiting[0].start {
		w = heap.Pop(&l.fresh).(*waiter) //nolint:forcetypeassert // nothing else is put in
		start = l.freshTag
		l.freshTag += max(w.cost, 1) / newShares
		w.start = w.account.flow.virtual
		w.account.flow.end = max(w.account.flow.end, start) + w.cost
	} else {
		f := l.waiting[0]
		w = heap.Pop(&f.waiting).(*waiter) //nolint:forcetypeassert // the same
		start = f.start
		f.virtual = max(f.virtual, w.start)
		f.end = max(f.end, start+w.cost)
		l.next(f)
	}
	l.bucket.tokens -= w.cost
	l.virtual = max(l.virtual, start)
	w.account.served, w.account.end = true, w.start+w.cost
	close(w.begun)
}

// next gives a flow among those that wait its place, after work of it has begun or was forgotten.
func (l *Limiter) next(f *flow) {
	if len(f.waiting) == 0 {
		heap.Remove(&l.waiting, f.index)
		return
	}
	f.start = max(f.start, f.end)
	heap.Fix(&l.waiting, f.index)
}

// serve begins the work for which there are tokens.
func (l *Limiter) serve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bucket.refill()
	for len(l.waiting)+len(l.fresh) > 0 && l.bucket.tokens > 0 {
		l.begin()
	}
	if len(l.waiting)+len(l.fresh) == 0 {
		l.timer = nil
		return
	}
	l.timer.Reset(l.untilTokens())
}

// forget removes work that is not needed any longer.
func (l *Limiter) forget(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.index >= 0 {
		heap.Remove(w.queue, w.index)
		if w.queue != &l.fresh {
			l.next(w.account.flow)
		}
	}
}

// untilTokens returns the time until work may begin.
func (l *Limiter) untilTokens() time.Duration {
	return l.bucket.untilPaid() + time.Millisecond // more than 0 tokens, and not one timer for each unit
}

// waiter is work that waits.
type waiter struct {
	account *Account
	queue   *waiters
	start   float64 // start tag: work with the lowest begins first
	cost    float64
	arrival uint64        // its number: of equal start tags, the first to arrive begins first
	begun   chan struct{} // closed when the work may begin
	index   int           // in the queue; -1 when it has begun
}

// waiters is a heap by start tag, then by arrival.
type waiters []*waiter

func (w *waiters) Len() int { return len(*w) }

func (w *waiters) Less(i, j int) bool {
	a, b := (*w)[i], (*w)[j]
	return a.start < b.start || a.start == b.start && a.arrival < b.arrival
}

func (w *waiters) Swap(i, j int) {
	all := *w
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

func (w *waiters) Push(x any) {
	one := x.(*waiter) //nolint:forcetypeassert // heap passes what request gave it
	one.index = len(*w)
	*w = append(*w, one)
}

func (w *waiters) Pop() any {
	last := len(*w) - 1
	one := (*w)[last]
	(*w)[last] = nil
	*w, one.index = (*w)[:last], -1
	return one
}

// flows is a heap of flows with work that waits, by start tag, then by the arrival of their next work.
type flows []*flow

func (f *flows) Len() int { return len(*f) }

func (f *flows) Less(i, j int) bool {
	a, b := (*f)[i], (*f)[j]
	return a.start < b.start || a.start == b.start && a.waiting[0].arrival < b.waiting[0].arrival
}

func (f *flows) Swap(i, j int) {
	all := *f
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

func (f *flows) Push(x any) {
	one := x.(*flow) //nolint:forcetypeassert // heap passes what request gave it
	one.index = len(*f)
	*f = append(*f, one)
}

func (f *flows) Pop() any {
	last := len(*f) - 1
	one := (*f)[last]
	(*f)[last] = nil
	*f = (*f)[:last]
	return one
}
