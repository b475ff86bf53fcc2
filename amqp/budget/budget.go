package budget

import (
	"sync"
	"sync/atomic"
)

// The thresholds of the Budget, in percent of the bytes that a pool has to share.
const (
	// From CreditPercent on, accounts above their fair share get no more credit, until all together
	// are below ReliefPercent again. Fair shares are computed from ReliefPercent.
	CreditPercent = 70
	ReliefPercent = 60
	// BusyPercent is from where on sends of accounts above their fair share are refused.
	BusyPercent = 85
	// EvictPercent is from where on the largest accounts are closed.
	EvictPercent = 95
	// UnauthenticatedPercent of the limit is for unauthenticated connections.
	UnauthenticatedPercent = 6
	// connectionsPercentMax is the largest part of the limit that the fixed costs of connections take
	// off: the number of connections is limited elsewhere, and some bytes must be left to share.
	connectionsPercentMax = 50
)

const (
	// BytesMin is the smallest limit: less does not hold one large message.
	BytesMin = 16 << 20
	// ConnectionBytes is the fixed cost of an idle connection: two stacks, small buffers, its
	// entries in maps. It is subtracted from the bytes that are shared.
	ConnectionBytes = 16 << 10
	// freeBytes of an account are part of its fixed cost: a connection that is being opened, or
	// that waits with a few links, uses none of the shared bytes.
	freeBytes = 16 << 10

	chunkBytesMin = 4 << 10
	chunkBytesMax = 64 << 10
	chunksPerPool = 1 << 14 // chunks that the limit has at least, within these bounds

	// reviewsPerPool limits the work of computing fair shares: a pool is reviewed again when the
	// bytes that are held have changed by 1/reviewsPerPool of its capacity.
	reviewsPerPool = 64
)

// Level is how far an account is restricted. Each level includes those below it.
type Level int32

// The levels.
const (
	Unrestricted Level = iota
	NoCredit           // it gets no new credit, and is read no faster than its messages are stored
	Busy               // its sends are refused
	Evicted            // it is being closed
)

// Owner is the party that an account belongs to: the connections of one owner divide its share.
type Owner struct {
	Namespace uint32
	Key       string
}

// Stats is a Budget at one moment, in bytes unless said otherwise.
type Stats struct {
	Limit int64
	// Used is what accounts have reserved, and the fixed costs of connections: at most twice what
	// they hold, and little more than that near the limit.
	Used            int64
	Unauthenticated int64  // the part of Used that unauthenticated connections hold
	Accounts        int    // that are open
	Restricted      int    // that are on a level above Unrestricted
	Evictions       uint64 // accounts that were evicted since the Budget was made
}

// Budget is a number of bytes and the accounts that share it. Its methods, and those of
// different accounts, may be called from any goroutine.
type Budget struct {
	limit int64
	chunk int64
	short atomic.Bool // a pool is above its threshold: accounts reserve no more than they need

	mu              sync.Mutex
	accounts        int
	serial          uint64
	authenticated   pool
	unauthenticated pool
	evictions       uint64
}

// New makes a Budget of so many bytes, at least BytesMin.
func New(bytes int64) *Budget {
	bytes = max(bytes, BytesMin)
	b := &Budget{limit: bytes, chunk: min(chunkBytesMax, max(chunkBytesMin, bytes/chunksPerPool))}
	b.authenticated, b.unauthenticated = newPool(), newPool()
	b.unauthenticated.oldest = true
	return b
}

// Account counts what one connection holds. Set, Trim and Close must be called by one goroutine
// at a time (the gateway holds the mutex of the connection); the other methods may be called
// concurrently. A nil *Account counts nothing and is never restricted.
type Account struct {
	budget  *Budget
	changed func(Level)
	level   atomic.Int32
	fair    atomic.Int64

	// reserved is written under the mutex of the Budget by the caller of Set, which may read it
	// without. The rest belongs to the mutex of the Budget.
	reserved int64
	pool     *pool
	share    *share
	serial   uint64
}

// Open adds the account of an unauthenticated connection. changed is called when its level
// changes, under the mutex of the Budget and from any goroutine: it must not block, and must
// not call back.
func (b *Budget) Open(changed func(Level)) *Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accounts++
	b.serial++
	a := &Account{budget: b, changed: changed, serial: b.serial}
	b.unauthenticated.add(a, Owner{})
	return a
}

// Assign moves the account to an owner, when its connection has signed in.
func (a *Account) Assign(to Owner) {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.share == nil {
		return
	}
	a.pool.remove(a)
	b.authenticated.add(a, to)
	if a.Level() == Evicted {
		b.authenticated.restricted++
	} else {
		a.set(Unrestricted)
	}
	b.review(&b.unauthenticated)
	b.review(&b.authenticated)
}

// Set records how many bytes the connection holds now. It only compares two numbers unless that
// is more than the account has reserved, or much less.
func (a *Account) Set(bytes int64) {
	if a == nil {
		return
	}
	bytes = max(0, bytes-freeBytes)
	b := a.budget
	chunk, spare := b.chunk, b.chunk
	if !b.short.Load() {
		spare += a.reserved / 2 // what is held rises and falls with every answer
	}
	if bytes > a.reserved || bytes < a.reserved-spare {
		a.reserve((bytes + chunk - 1) / chunk * chunk)
	}
}

// Trim returns the spare bytes that Set keeps reserved.
func (a *Account) Trim(bytes int64) {
	if a == nil {
		return
	}
	chunk := a.budget.chunk
	if bytes = (max(0, bytes-freeBytes) + chunk - 1) / chunk * chunk; bytes < a.reserved {
		a.reserve(bytes)
	}
}

func (a *Account) reserve(bytes int64) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.share == nil { // closed
		return
	}
	a.share.used += bytes - a.reserved
	a.pool.used += bytes - a.reserved
	a.reserved = bytes
	if level := a.Level(); level != Unrestricted && level != Evicted && bytes <= a.fair.Load() {
		a.set(Unrestricted)
		a.pool.restricted--
	}
	b.review(a.pool)
}

// Close returns everything. It may be called more than once.
func (a *Account) Close() {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.share == nil {
		return
	}
	was := a.pool
	was.remove(a)
	a.share, a.reserved = nil, 0
	b.accounts--
	b.review(was)
}

// Level returns the current level of the account. It is an atomic load.
func (a *Account) Level() Level {
	if a == nil {
		return Unrestricted
	}
	return Level(a.level.Load())
}

// Fair returns how many bytes the account may hold without being restricted. It is meaningful
// while the account is restricted.
func (a *Account) Fair() int64 { return a.fair.Load() + freeBytes }

// set changes the level and calls changed. The mutex of the Budget is held.
func (a *Account) set(level Level) {
	if Level(a.level.Swap(int32(level))) != level {
		a.changed(level)
	}
}

// Stats returns what is used.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{
		Limit: b.limit, Used: b.authenticated.used + b.unauthenticated.used + b.fixed(), Unauthenticated: b.unauthenticated.used,
		Accounts: b.accounts, Restricted: b.authenticated.restricted + b.unauthenticated.restricted, Evictions: b.evictions,
	}
}

// fixed returns the fixed costs of all connections, in bytes.
func (b *Budget) fixed() int64 { return int64(b.accounts) * ConnectionBytes }

// capacity returns the bytes that a pool has to share.
func (b *Budget) capacity(p *pool) int64 {
	unauthenticated := b.limit / 100 * UnauthenticatedPercent
	if p == &b.unauthenticated {
		return unauthenticated
	}
	return b.limit - unauthenticated - min(b.fixed(), b.limit/100*connectionsPercentMax)
}

// review recomputes the levels of a pool's accounts if they may have changed. The mutex of the
// Budget is held.
func (b *Budget) review(p *pool) {
	capacity := b.capacity(p)
	tight := p.reviewed > 0
	switch changed := p.used - p.reviewed; {
	case p.used <= capacity/100*ReliefPercent, !tight && p.used <= capacity/100*CreditPercent:
		if p.restricted > 0 {
			p.relieve()
		}
		p.reviewed = 0
	case !tight || max(changed, -changed) >= capacity/reviewsPerPool:
		p.reviewed = p.used
		b.evictions += uint64(p.restrict(capacity))
	}
	if now := b.authenticated.reviewed > 0 || b.unauthenticated.reviewed > 0; now != b.short.Load() {
		b.short.Store(now)
	}
}
